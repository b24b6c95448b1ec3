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
from nacre.events import Stream
from nacre.warden import door, frames
from nacre.warden.frames import Adopt, Answered, Hello, Leaving, Problem

_PATIENCE: Final = 10.0
_PAUSE: Final = 0.005
_ANSWER: Final = 0.5


def hand_over(adopt: Adopt, fds: list[int]) -> bool:
    """False when nobody could be found who takes them; they are still ours in any case."""
    try:
        return _sent(adopt, fds) or _started(adopt, fds)
    except (OSError, OverflowError, door.NotOurs, frames.TooLong, msgspec.MsgspecError):
        return False


def _sent(adopt: Adopt, fds: list[int]) -> bool:
    connection = door.connect()
    if connection is None:
        return False
    hello = Hello(protocol=frames.PROTOCOL, version=nacre.__version__)
    with connection:
        socket.send_fds(connection, [frames.packed(hello) + frames.packed(adopt)], fds)
        return _taken(connection)


def _taken(connection: socket.socket) -> bool:
    """Whether it says so. One that says nothing will, when it comes to it: they are on their way.
    One that hangs up has not."""
    connection.settimeout(_ANSWER)
    incoming = frames.Incoming()
    try:
        while data := connection.recv(65536):
            incoming.pieces.append(data)
            for frame in incoming.frames():
                match frames.from_warden(frame):
                    case Answered():
                        return True
                    case Problem() | Leaving():
                        return False
    except TimeoutError:
        return True
    return False


def _started(adopt: Adopt, fds: list[int]) -> bool:
    pipes = ",".join(f"{stream.value}:{fd}" for stream, fd in zip(adopt.streams, fds, strict=True))
    word = f"{adopt.run};{adopt.workspace.hex()};{adopt.limit};{pipes}"
    os.close(door.start(tuple(fds), "--adopt", word))
    return True


def handed_over(word: str) -> tuple[Adopt, list[int]]:
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


def pass_on(adopt: Adopt, fds: list[int]) -> None:
    """To the one who was faster, and may be about to listen."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        with suppress(OSError):
            if _sent(adopt, fds):
                return
        time.sleep(_PAUSE)
