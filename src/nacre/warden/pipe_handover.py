"""Handover of output pipes to the warden (nacre's daemon), after a run whose leftover processes
still hold the pipes open.

A warden that already listens receives the pipes of leftover processes over its socket. If no warden
listens, a new warden inherits the pipes of leftover processes from the process that starts it,
because that process may exit before the new warden listens. If a newly started warden finds that
another warden already runs, the new warden passes the pipes of leftover processes on to the other
warden.
"""

import os
import socket
import time
from contextlib import suppress
from typing import Final

import msgspec

import nacre
from nacre.model.events import Stream
from nacre.warden import endpoint, protocol
from nacre.warden.protocol import Adopt, Hello, Leaving, Problem, ResponseFrame

_FORWARD_TIMEOUT: Final = 10.0
_RETRY_INTERVAL: Final = 0.005
_ACCEPT_TIMEOUT: Final = 0.5


def hand_over_pipes(adopt: Adopt, fds: list[int]) -> bool:
    """Pass copies of the pipe descriptors `fds` to the warden; return False if no warden takes
    them.

    `hand_over_pipes` does not close `fds`, the caller's own descriptors of the pipes.
    """
    try:
        return _send_to_warden(adopt, fds) or _start_with_pipes(adopt, fds)
    except (
        OSError,
        OverflowError,
        endpoint.ForeignSocket,
        protocol.FrameTooLong,
        msgspec.MsgspecError,
    ):
        return False


def _send_to_warden(adopt: Adopt, fds: list[int]) -> bool:
    connection = endpoint.connect()
    if connection is None:
        return False
    hello = Hello(protocol=protocol.PROTOCOL, version=nacre.__version__)
    with connection:
        socket.send_fds(
            connection, [protocol.encode_frame(hello) + protocol.encode_frame(adopt)], fds
        )
        return _wait_for_acceptance(connection)


def _wait_for_acceptance(connection: socket.socket) -> bool:
    """Return whether the warden takes the pipes that were sent to it.

    If the warden does not respond in time, return True, because the pipes that were sent are
    already in the warden's socket, and the warden will take them later. Return False if the warden
    refuses the pipes that were sent to it, or closes the connection.
    """
    connection.settimeout(_ACCEPT_TIMEOUT)
    incoming = protocol.FrameBuffer()
    try:
        while data := connection.recv(65536):
            incoming.pieces.append(data)
            for frame in incoming.frames():
                match protocol.decode_warden_frame(frame):
                    case ResponseFrame():
                        return True
                    case Problem() | Leaving():
                        return False
    except TimeoutError:
        return True
    return False


def _start_with_pipes(adopt: Adopt, fds: list[int]) -> bool:
    pipes = ",".join(f"{stream.value}:{fd}" for stream, fd in zip(adopt.streams, fds, strict=True))
    word = f"{adopt.run};{adopt.workspace.hex()};{adopt.limit};{pipes}"
    os.close(endpoint.start_warden(tuple(fds), "--adopt", word))
    return True


def parse_handover(word: str) -> tuple[Adopt, list[int]]:
    """Parse the `--adopt` option of a new warden: the run, and the inherited pipes of its leftover
    processes."""
    run, workspace, limit, pipes = word.split(";")
    pairs = [each.partition(":") for each in pipes.split(",")]
    adopt = Adopt(
        run=run,
        workspace=bytes.fromhex(workspace),
        streams=tuple(Stream(name) for name, _, _ in pairs),
        limit=int(limit),
    )
    fds = [int(fd) for _, _, fd in pairs]
    for fd in fds:
        os.set_inheritable(fd, False)
    return adopt, fds


def forward_pipes(adopt: Adopt, fds: list[int]) -> None:
    """Send the inherited pipes of this new warden to the warden that already runs; retry, because
    the other warden may not listen yet."""
    end = time.monotonic() + _FORWARD_TIMEOUT
    while time.monotonic() < end:
        with suppress(OSError):
            if _send_to_warden(adopt, fds):
                return
        time.sleep(_RETRY_INTERVAL)
