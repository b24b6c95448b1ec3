"""Leftover pipes: output pipes of ended runs that leftover processes still hold open.

nacre keeps the output pipes of leftover processes open and reads them, because a closed pipe would
kill its writer at the next line, and a full pipe would block its writer. While a thread of this
process drives an event loop, the loop reads the pipes of all leftover processes, even if another
`Engine` object of this process started them. Output that a leftover process writes after its run's
end goes to the callback `on_data`, which discards the output by default. While no thread drives an
event loop, the pipes of leftover processes are parked: they stay unread in a list in this module.
"""

import os
import threading
from collections.abc import Callable

from nacre.eventloop import Callback, EventLoop
from nacre.model.events import Stream
from nacre.process import spawner
from nacre.process.pipe_reader import PipeReader

# Maximum reads from the pipe of a leftover process per wake-up of the event loop, so that a flood
# of output does not starve a running command.
_MAX_READS = 4


# Callback for output that leftover processes write to a pipe of an ended run; if the callback
# returns False, the pipe is closed.
OnData = Callable[[Stream, bytes | bytearray], bool]


def _discard(stream: Stream, data: bytes | bytearray) -> bool:
    del stream, data
    return True


class LeftoverPipes:
    """Open output pipes of one ended run, and the pidfd of its shell if the shell could not be
    killed."""

    def __init__(
        self, readers: dict[Stream, PipeReader], pidfd: int | None, take: OnData = _discard
    ) -> None:
        self.run = ""
        # Workspace of the ended run; None: the run is not stored.
        self.workspace: bytes | None = None
        self.limit = 0  # maximum bytes of the run's output to keep on disk
        self.on_data = take
        # Callback for the moment when the last pipe and the pidfd of the ended run are closed.
        self.on_close: Callback = lambda: None
        self._readers = readers
        self._pidfd = pidfd  # pidfd of the run's shell if the shell could not be killed, else None

    @property
    def closed(self) -> bool:
        return not self._readers and self._pidfd is None

    @property
    def pipes(self) -> dict[Stream, int]:
        return {stream: reader.fd for stream, reader in self._readers.items()}

    def close(self) -> None:
        """Close the ended run's pipes in this process, after another process has taken the pipes
        over."""
        for reader in self._readers.values():
            reader.close()
        self._readers = {}

    def fds(self) -> list[int]:
        return [*self.pipes.values()] + ([] if self._pidfd is None else [self._pidfd])

    def serve(self, fd: int, forget: Callable[[int], None]) -> None:
        """Handle an event on a descriptor of the ended run: if `fd` is an output pipe, read the
        pipe and close it at EOF; if `fd` is the pidfd of the run's shell, reap the shell. `forget`
        is a function that stops the event loop from watching `fd`."""
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
    """Reset this module in a forked child: replace the lock, which a thread of the parent process
    may have held, and empty the list of pipes, which the parent process still reads."""
    global _lock
    _lock = threading.Lock()
    _parked.clear()


def park(leftover: LeftoverPipes) -> None:
    with _lock:
        _parked.append(leftover)


def unpark() -> list[LeftoverPipes]:
    """Return all parked pipes (leftover pipes that no event loop reads) and empty their list; from
    now on, the caller reads the pipes."""
    if not _parked:
        return []
    with _lock:
        parked, _parked[:] = list(_parked), []
        return parked


def drain_parked() -> int:
    """Read the available data from the parked pipes (leftover pipes that no event loop reads)
    without waiting, and return how many ended runs still have open pipes."""
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
