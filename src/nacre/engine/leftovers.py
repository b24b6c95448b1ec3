"""Pipes of commands that have ended but left something running.

Closing such a pipe would kill its writer at the next line, and a full one would stop it; so it
is kept, and read into nowhere, by whichever loop is being driven, of whichever engine. The shelf
is where they lie while nobody drives.
"""

import os
import threading
from collections.abc import Callable

from nacre.loop import Loop
from nacre.process import child
from nacre.process.pipes import Reader

# One wake-up reads at most so often: a left-behind flood must not starve a command.
_READS = 4


class Leftover:
    """What is still open of one ended command."""

    def __init__(self, readers: list[Reader], pidfd: int | None) -> None:
        self._readers = readers
        self._pidfd = pidfd  # of a shell that could not be killed

    @property
    def over(self) -> bool:
        return not self._readers and self._pidfd is None

    def fds(self) -> list[int]:
        return [reader.fd for reader in self._readers] + (
            [] if self._pidfd is None else [self._pidfd]
        )

    def serve(self, fd: int, forget: Callable[[int], None]) -> None:
        """`fd` is readable: drain it, and close it at its end."""
        if fd == self._pidfd:
            forget(fd)
            child.collect(fd)
            os.close(fd)
            self._pidfd = None
            return
        reader = next(reader for reader in self._readers if reader.fd == fd)
        for _ in range(_READS):
            data = reader.read()
            if data == b"":
                forget(fd)
                self._readers.remove(reader)
                reader.close()
            if not data:
                return


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
