"""Reader of an output pipe that may be silent for an hour and then deliver a gigabyte.

A pipe holds 64 KiB by default; during a flood of output, the reader enlarges it to 1 MiB, which
saves most of the wake-ups. Only a few pipes are enlarged at a time, because Linux allows each user
64 MiB of pipe buffers and gives each pipe beyond this limit only 8 KiB.
"""

import fcntl
import os
import sys
import termios
from typing import Final

DEFAULT_SIZE: Final = 64 * 1024
GROWN_SIZE: Final = 1024 * 1024
BIG_READ: Final = 256 * 1024
_FLOOD: Final = 4  # number of consecutive full reads after which the output counts as a flood
_CALM: Final = 64  # number of consecutive small reads that end a flood of output


def count_unread(fd: int) -> int:
    """Return the number of unread bytes in a pipe; `fd` is either end of the pipe."""
    count = bytearray(4)
    try:
        fcntl.ioctl(fd, termios.FIONREAD, count)
    except OSError:
        return 0
    return int.from_bytes(count, sys.byteorder)


class PipeGrowth:
    """Shared limit on the number of pipes that are enlarged at the same time."""

    def __init__(self, limit: int = 8) -> None:
        self.left = limit


class PipeReader:
    """Reader of one output pipe; enlarges the pipe during a flood of output."""

    # The docstring of `engine.run.Run` says why the attributes of `PipeReader` have class-level
    # defaults.
    _buffer: bytearray | None = None  # read buffer, reused during a flood of output
    _grown = False
    _streak = 0  # number of full reads in a row; a negative number counts small reads in a row

    def __init__(self, fd: int, growth: PipeGrowth) -> None:
        self.fd = fd
        self._growth = growth

    @property
    def inode(self) -> int:
        return os.fstat(self.fd).st_ino

    def read(self) -> bytes | bytearray | None:
        """Return the available bytes, None when the pipe is empty for now, or b"" at EOF.

        The returned buffer is valid only until the next call of `read`.
        """
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
        except OSError:
            # Enlarging a pipe fails without permission, and shrinking a pipe fails if the unread
            # data would not fit; the pipe then keeps its size.
            return False
        return True
