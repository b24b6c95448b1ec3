"""Where the lines of a long output are: a small index beside its file, written as the file is.

A record for every few megabytes: how many bytes, and how many newlines in them. So any line of
a log of gigabytes is found by reading a few megabytes, and their number by reading the last
record. There is no more in it than in the output: without it, everything is found by reading all.
"""

import os
import struct
from bisect import bisect_right
from typing import Final

from msgspec import Struct

INTERVAL: Final = 4 * 1024 * 1024
_RECORD: Final = struct.Struct("<QQ")
_SUFFIX: Final = b".lines"


class IndexEntry(Struct, frozen=True):
    """So many newlines are in so many first bytes."""

    size: int
    newlines: int


_START: Final = IndexEntry(0, 0)


def index_path(output: bytes) -> bytes:
    return output + _SUFFIX


class LineIndexWriter:
    """Written by whoever writes the output. Opened for each record: there is one in a while, and
    a descriptor for each long output is more than a process with many of them can spare."""

    def __init__(self, output: bytes) -> None:
        self._last = 0
        self._broken = False
        self._path = index_path(output)

    def add(self, size: int, newlines: int) -> None:
        """There are so many by now. What cannot be written is not."""
        if size - self._last < INTERVAL or self._broken:
            return
        self._last = size
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._path, flags, 0o600)
            try:
                self._broken = os.write(fd, _RECORD.pack(size, newlines)) != _RECORD.size
            finally:
                os.close(fd)
        except OSError:
            self._broken = True


class LineIndex:
    """The index as it is now, read by whoever looks for a line."""

    def __init__(self, output: bytes | None) -> None:
        self._entries = [_START] if output is None else [_START, *_read_entries(index_path(output))]

    def before_line(self, number: int) -> IndexEntry:
        """The last mark that is not behind the beginning of this line, counted from 1."""
        at = bisect_right(self._entries, number - 2, key=lambda mark: mark.newlines)
        return self._entries[max(0, at - 1)]

    def before_byte(self, position: int) -> IndexEntry:
        at = bisect_right(self._entries, position, key=lambda mark: mark.size)
        return self._entries[at - 1]


EMPTY_INDEX: Final = LineIndex(None)


def _read_entries(path: bytes) -> list[IndexEntry]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return []
    whole = len(data) // _RECORD.size * _RECORD.size
    found: list[IndexEntry] = []
    for size, newlines in _RECORD.iter_unpack(data[:whole]):
        if found and not (size > found[-1].size and newlines >= found[-1].newlines):
            break  # somebody has broken it; what comes before is good
        found.append(IndexEntry(size, newlines))
    return found
