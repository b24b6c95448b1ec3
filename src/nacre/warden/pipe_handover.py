"""Handing the pipes of what a finished command left running to the warden.

To one that listens they go over the socket. Where there is none, one is started and has them from
its birth: whoever hands over may be gone the next moment. If it finds another one in its place by
then, it passes them on.
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
    """False when nobody could be found who takes them; they are still ours in any case."""
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
    """Whether it says so. One that says nothing will, when it comes to it: they are on their way.
    One that hangs up has not."""
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
    """What one is started with."""
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
    """To the one who was faster, and may be about to listen."""
    end = time.monotonic() + _FORWARD_TIMEOUT
    while time.monotonic() < end:
        with suppress(OSError):
            if _send_to_warden(adopt, fds):
                return
        time.sleep(_RETRY_INTERVAL)
