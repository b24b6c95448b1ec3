"""Line index of a long output: a small file beside the output file, written at the same time.

The index has one record for every few megabytes of output: the bytes so far, and the newlines in
them. With the index, any line of a log of gigabytes is found by reading a few megabytes. The last
record of the index gives the number of lines. The index is redundant: without the index, every line
is found by reading the whole output.
"""

import os
import struct
from bisect import bisect_right
from typing import Final

from msgspec import Struct

INTERVAL: Final = 4 * 1024 * 1024  # minimum bytes of output between two index records
_RECORD: Final = struct.Struct("<QQ")
_SUFFIX: Final = b".lines"


class IndexEntry(Struct, frozen=True):
    """Index record: the first `size` bytes of the output contain `newlines` newlines."""

    size: int
    newlines: int


_START: Final = IndexEntry(0, 0)


def index_path(output: bytes) -> bytes:
    return output + _SUFFIX


class LineIndexWriter:
    """Writer of a line index, used by the process that writes the output. The index file is opened
    for each record, because records are rare. A process with many long outputs cannot spare one
    more open descriptor for each output."""

    def __init__(self, output: bytes) -> None:
        self._last = 0
        self._broken = False
        self._path = index_path(output)

    def add(self, size: int, newlines: int) -> None:
        """Write a record if the output has grown by `INTERVAL` since the last record. `size` and
        `newlines` count the whole output so far. After a failed write, no more records are
        written."""
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
    """Contents of a line index file at the time of reading, for finding lines."""

    def __init__(self, output: bytes | None) -> None:
        self._entries = [_START] if output is None else [_START, *_read_entries(index_path(output))]

    def before_line(self, number: int) -> IndexEntry:
        """Return the last index record before the start of a line. Line numbers start at 1."""
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
            break  # the index is damaged from this record on; earlier records are valid
        found.append(IndexEntry(size, newlines))
    return found
