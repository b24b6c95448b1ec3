"""Pipes of commands that have ended but left something running.

Closing such a pipe would kill its writer at the next line, and a full one would stop it; so it
is kept, and read, by whichever loop is being driven, of whichever engine: into nowhere, unless
somebody wants it. The shelf is where they lie while nobody drives.
"""

import os
import threading
from collections.abc import Callable

from nacre.eventloop import Callback, EventLoop
from nacre.model.events import Stream
from nacre.process import spawner
from nacre.process.pipe_reader import PipeReader

# One wake-up reads at most so often: a left-behind flood must not starve a command.
_MAX_READS = 4


OnData = Callable[[Stream, bytes | bytearray], bool]  # False: no more of it


def _discard(stream: Stream, data: bytes | bytearray) -> bool:
    del stream, data
    return True


class LeftoverPipes:
    """What is still open of one ended command."""

    def __init__(
        self, readers: dict[Stream, PipeReader], pidfd: int | None, take: OnData = _discard
    ) -> None:
        self.run = ""
        self.workspace: bytes | None = None  # None: nobody has written it down
        self.limit = 0  # bytes of its output that may be kept
        self.on_data = take
        self.on_close: Callback = lambda: None  # once it is over
        self._readers = readers
        self._pidfd = pidfd  # of a shell that could not be killed

    @property
    def closed(self) -> bool:
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
            spawner.collect(fd)
            os.close(fd)
            self._pidfd = None
            self._check_closed()
            return
        stream, reader = next(each for each in self._readers.items() if each[1].fd == fd)
        for _ in range(_MAX_READS):
            data = reader.read()
            if data is None:
                return
            if not data or not self.on_data(stream, data):
                forget(fd)
                del self._readers[stream]
                reader.close()
                self._check_closed()
                return

    def _check_closed(self) -> None:
        if self.closed:
            self.on_close()


_parked: list[LeftoverPipes] = []
_lock = threading.Lock()


def after_fork() -> None:
    """We are in a fork of our host: whoever held the lock is not here, and what lies on the shelf
    is the parent's to drain."""
    global _lock
    _lock = threading.Lock()
    _parked.clear()


def park(leftover: LeftoverPipes) -> None:
    with _lock:
        _parked.append(leftover)


def unpark() -> list[LeftoverPipes]:
    """All that lies there; the caller drives them from now on."""
    if not _parked:
        return []
    with _lock:
        parked, _parked[:] = list(_parked), []
        return parked


def drain_parked() -> int:
    """Drain what lies on the shelf without waiting; returns how many are still open."""
    loop = EventLoop()
    try:
        parked = unpark()
        for leftover in parked:
            watch(leftover, loop)
        loop.step(0)
    finally:
        loop.close()
    still = [leftover for leftover in parked if not leftover.closed]
    for leftover in still:
        park(leftover)
    return len(still)


def watch(leftover: LeftoverPipes, loop: EventLoop) -> None:
    for fd in leftover.fds():
        loop.watch(fd, lambda fd=fd: leftover.serve(fd, loop.unwatch))  # type: ignore[misc]


def unwatch(leftover: LeftoverPipes, loop: EventLoop) -> None:
    for fd in leftover.fds():
        loop.unwatch(fd)
