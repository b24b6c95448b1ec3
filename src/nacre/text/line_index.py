"""Line index of a long output: a small file beside the output file, written at the same time.

For every few megabytes of output, the line index has a record: the number of bytes so far and the
number of newlines in them. With the line index, nacre finds any line in gigabytes of output by
reading only a few megabytes. To count an output's lines, nacre reads only the last index record and
the output after it. The line index only saves time: without it, nacre reads the
output from its start up to the line.
"""

import os
import struct
from bisect import bisect_right
from typing import Final

from msgspec import Struct

INTERVAL: Final = 4 * 1024 * 1024  # minimum bytes of output between two records of a line index
_RECORD: Final = struct.Struct("<QQ")
_SUFFIX: Final = b".lines"


class IndexEntry(Struct, frozen=True):
    """Record of a line index: the first `size` bytes of the output contain `newlines` newlines."""

    size: int
    newlines: int


_START: Final = IndexEntry(0, 0)


def index_path(output: bytes) -> bytes:
    return output + _SUFFIX


class LineIndexWriter:
    """Writer of a line index, used by the process that writes the output. The file of the line
    index is opened and closed for each record, because records are rare. Keeping index files open
    would cost a process with many long outputs too many descriptors."""

    def __init__(self, output: bytes) -> None:
        self._last = 0
        self._broken = False
        self._path = index_path(output)

    def add(self, size: int, newlines: int) -> None:
        """Write an index record if the output has grown by at least `INTERVAL` bytes since the last
        record. `size` and `newlines` are the numbers of bytes and newlines in the whole output so
        far. After a failed write, no more index records are written."""
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
    """Contents of a line index, read once from its file, with which a line is found without reading
    the whole output."""

    def __init__(self, output: bytes | None) -> None:
        self._entries = [_START] if output is None else [_START, *_read_entries(index_path(output))]

    def before_line(self, number: int) -> IndexEntry:
        """Return the last index record before the start of line `number`; the first line has number
        1."""
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
            break  # the line index is damaged from this record on; earlier records are valid
        found.append(IndexEntry(size, newlines))
    return found
