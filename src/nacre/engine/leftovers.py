"""Pipes of commands that have ended but left something running.

Closing such a pipe would kill its writer at the next line, and a full one would stop it; so it
is kept, and read, by whichever loop is being driven, of whichever engine: into nowhere, unless
somebody wants it. The shelf is where they lie while nobody drives.
"""

import os
import threading
from collections.abc import Callable

from nacre.events import Stream
from nacre.loop import Call, Loop
from nacre.process import child
from nacre.process.pipes import Reader

# One wake-up reads at most so often: a left-behind flood must not starve a command.
_READS = 4


Take = Callable[[Stream, bytes | bytearray], bool]  # False: no more of it


def _nowhere(stream: Stream, data: bytes | bytearray) -> bool:
    del stream, data
    return True


class Leftover:
    """What is still open of one ended command."""

    def __init__(
        self, readers: dict[Stream, Reader], pidfd: int | None, take: Take = _nowhere
    ) -> None:
        self.run = ""
        self.workspace: bytes | None = None  # None: nobody has written it down
        self.limit = 0  # bytes of its output that may be kept
        self.take = take
        self.then: Call = lambda: None  # once it is over
        self._readers = readers
        self._pidfd = pidfd  # of a shell that could not be killed

    @property
    def over(self) -> bool:
        return not self._readers and self._pidfd is None

    @property
    def pipes(self) -> dict[Stream, int]:
        return {stream: reader.fd for stream, reader in self._readers.items()}

    def close(self) -> None:
        """Somebody else has its pipes now."""
        for reader in self._readers.values():
            reader.close()
        self._readers = {}

    def fds(self) -> list[int]:
        return [*self.pipes.values()] + ([] if self._pidfd is None else [self._pidfd])

    def serve(self, fd: int, forget: Callable[[int], None]) -> None:
        """`fd` is readable: drain it, and close it at its end."""
        if fd == self._pidfd:
            forget(fd)
            child.collect(fd)
            os.close(fd)
            self._pidfd = None
            self._then()
            return
        stream, reader = next(each for each in self._readers.items() if each[1].fd == fd)
        for _ in range(_READS):
            data = reader.read()
            if data is None:
                return
            if not data or not self.take(stream, data):
                forget(fd)
                del self._readers[stream]
                reader.close()
                self._then()
                return

    def _then(self) -> None:
        if self.over:
            self.then()


_shelf: list[Leftover] = []
_lock = threading.Lock()


def forked() -> None:
    """We are in a fork of our host: whoever held the lock is not here, and what lies on the shelf
    is the parent's to drain."""
    global _lock
    _lock = threading.Lock()
    _shelf.clear()


def shelve(leftover: Leftover) -> None:
    with _lock:
        _shelf.append(leftover)


def unshelve() -> list[Leftover]:
    """All that lies there; the caller drives them from now on."""
    if not _shelf:
        return []
    with _lock:
        taken, _shelf[:] = list(_shelf), []
        return taken


def sweep() -> int:
    """Drain what lies on the shelf without waiting; returns how many are still open."""
    loop = Loop()
    try:
        taken = unshelve()
        for leftover in taken:
            watch(leftover, loop)
        loop.step(0)
    finally:
        loop.close()
    still = [leftover for leftover in taken if not leftover.over]
    for leftover in still:
        shelve(leftover)
    return len(still)


def watch(leftover: Leftover, loop: Loop) -> None:
    for fd in leftover.fds():
        loop.watch(fd, lambda fd=fd: leftover.serve(fd, loop.forget))  # type: ignore[misc]


def unwatch(leftover: Leftover, loop: Loop) -> None:
    for fd in leftover.fds():
        loop.forget(fd)
