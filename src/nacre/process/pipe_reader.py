"""Reading a pipe that may be silent for an hour and then write a gigabyte.

A pipe holds 64 KiB; while it floods it is grown to 1 MiB, which saves most of the wake-ups.
Only a few at a time: Linux gives a user 64 MiB of pipes, and then 8 KiB for each further one.
"""

import fcntl
import os
import sys
import termios
from typing import Final

DEFAULT_SIZE: Final = 64 * 1024
GROWN_SIZE: Final = 1024 * 1024
BIG_READ: Final = 256 * 1024
# So many full reads in a row are a flood; so many small ones are the end of it.
_FLOOD: Final = 4
_CALM: Final = 64


def count_unread(fd: int) -> int:
    """How many bytes are in a pipe; either end will do."""
    count = bytearray(4)
    try:
        fcntl.ioctl(fd, termios.FIONREAD, count)
    except OSError:
        return 0
    return int.from_bytes(count, sys.byteorder)


class PipeGrowth:
    """How many pipes may be large at the same time, over all that share this."""

    def __init__(self, limit: int = 8) -> None:
        self.left = limit


class PipeReader:
    """The reading end of one pipe."""

    # Class-level defaults: see `engine.run.Run`.
    _buffer: bytearray | None = None  # while it floods: the same memory again and again
    _grown = False
    _streak = 0  # of full reads, or, below zero, of small ones after a flood

    def __init__(self, fd: int, growth: PipeGrowth) -> None:
        self.fd = fd
        self._growth = growth

    @property
    def inode(self) -> int:
        return os.fstat(self.fd).st_ino

    def read(self) -> bytes | bytearray | None:
        """What is there, until the next read: None for nothing now, b"" for never again."""
        try:
            data = (
                os.read(self.fd, DEFAULT_SIZE)
                if self._buffer is None
                else self._refill(self._buffer)
            )
        except BlockingIOError:
            return None
        if len(data) >= DEFAULT_SIZE:
            self._on_full_read()
        elif self._streak:
            self._on_small_read()
        return data

    def _refill(self, buffer: bytearray) -> bytes | bytearray:
        count = os.readv(self.fd, (buffer,))
        return buffer if count == len(buffer) else buffer[:count]

    def _on_full_read(self) -> None:
        self._streak = max(1, self._streak + 1)
        if self._streak == _FLOOD:
            self._grow()

    def _on_small_read(self) -> None:
        self._streak = min(-1, self._streak - 1)
        if self._streak == -_CALM:
            self._streak = 0
            self._shrink()

    def close(self) -> None:
        if self._grown:
            self._release_growth()
        os.close(self.fd)

    def _grow(self) -> None:
        self._buffer = bytearray(BIG_READ)
        if self._growth.left and not self._grown and self._resize(GROWN_SIZE):
            self._growth.left -= 1
            self._grown = True

    def _shrink(self) -> None:
        self._buffer = None
        if self._grown and self._resize(DEFAULT_SIZE):
            self._release_growth()

    def _release_growth(self) -> None:
        self._growth.left += 1
        self._grown = False

    def _resize(self, size: int) -> bool:
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, size)
        except OSError:  # not allowed, or more is waiting than would fit: as it is, then
            return False
        return True
