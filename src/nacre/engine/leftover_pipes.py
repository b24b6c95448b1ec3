"""Leftover pipes: output pipes of ended runs that leftover processes still hold open.

Closing a leftover pipe would kill its writer at the next line; a full pipe would block its writer.
So a leftover pipe stays open, and any driven event loop of any engine in this process reads it. The
data is discarded unless a callback takes the data. While no event loop is driven, the pipes are
parked in a list in this module.
"""

import os
import threading
from collections.abc import Callable

from nacre.eventloop import Callback, EventLoop
from nacre.model.events import Stream
from nacre.process import spawner
from nacre.process.pipe_reader import PipeReader

# Maximum reads per wake-up: a flood from leftover processes must not starve a running command.
_MAX_READS = 4


OnData = Callable[[Stream, bytes | bytearray], bool]  # takes output; False closes the pipe


def _discard(stream: Stream, data: bytes | bytearray) -> bool:
    del stream, data
    return True


class LeftoverPipes:
    """Open pipes of one ended run, and the pidfd of its shell if the shell cannot be killed."""

    def __init__(
        self, readers: dict[Stream, PipeReader], pidfd: int | None, take: OnData = _discard
    ) -> None:
        self.run = ""
        self.workspace: bytes | None = None  # workspace of the run; None: the run has no record
        self.limit = 0  # maximum bytes of the run's output to keep on disk
        self.on_data = take
        self.on_close: Callback = lambda: None  # called when the last descriptor is closed
        self._readers = readers
        self._pidfd = pidfd  # pidfd of a shell that could not be killed; None: no such shell

    @property
    def closed(self) -> bool:
        return not self._readers and self._pidfd is None

    @property
    def pipes(self) -> dict[Stream, int]:
        return {stream: reader.fd for stream, reader in self._readers.items()}

    def close(self) -> None:
        """Close the pipes in this process: another process has taken them over."""
        for reader in self._readers.values():
            reader.close()
        self._readers = {}

    def fds(self) -> list[int]:
        return [*self.pipes.values()] + ([] if self._pidfd is None else [self._pidfd])

    def serve(self, fd: int, forget: Callable[[int], None]) -> None:
        """Read from `fd`, which is readable, and close it at EOF. `forget` removes `fd` from the
        event loop."""
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
    """Reset this module in a forked child. A thread of the parent may have held the lock. The
    parked pipes are drained by the parent process."""
    global _lock
    _lock = threading.Lock()
    _parked.clear()


def park(leftover: LeftoverPipes) -> None:
    with _lock:
        _parked.append(leftover)


def unpark() -> list[LeftoverPipes]:
    """Return all parked pipes and empty the list; the caller reads the pipes from now on."""
    if not _parked:
        return []
    with _lock:
        parked, _parked[:] = list(_parked), []
        return parked


def drain_parked() -> int:
    """Drain the parked pipes without waiting. Return how many runs still have open pipes."""
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
