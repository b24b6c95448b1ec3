"""Ranges of an output file, selected by bytes or by lines from the start or the end.

    part (Since | Last | Between) -> locate -> (start, end) -> read_range

Output files are read in blocks: an output may have terabytes, or one line of a gigabyte, so no
function of the module `output_range` holds all of the output in memory. If an output file has a
line index, a line is found without reading the file from its beginning.
"""

import os
from collections.abc import Iterator
from typing import BinaryIO, Final, assert_never

from nacre.model.requests import Between, Last, Since
from nacre.text.clean import drop_partial_end
from nacre.text.line_index import EMPTY_INDEX, LineIndex

BLOCK_SIZE: Final = 1024 * 1024


def locate(
    source: BinaryIO, part: Since | Last | Between, index: LineIndex | None = None
) -> tuple[int, int]:
    """Return where a requested part of an output file is: the offset of its first byte, and the
    offset after its last byte."""
    size = source.seek(0, os.SEEK_END)
    match part:
        case Since(cursor=cursor):
            return min(cursor, size), size
        case Last(lines=count):
            return _find_last_lines(source, size, count), size
        case Between(first=first, last=last):
            start = find_line_start(source, first, index)
            end = size if last is None else find_line_start(source, last + 1, index)
            return start, max(start, end)
        case _:
            assert_never(part)


def read_range(source: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    source.seek(start)
    while start < end and (block := source.read(min(BLOCK_SIZE, end - start))):
        start += len(block)
        yield block


def read_page(source: BinaryIO, start: int, max_bytes: int, *, more_follows: bool) -> bytes:
    """Read at most `max_bytes` bytes of an output file from offset `start`.

    `more_follows` means that the output may still grow. If more output may follow, an incomplete
    character at the end of the page is left for the next page.
    """
    size = source.seek(0, os.SEEK_END)
    source.seek(start)
    data = read_exactly(source, max_bytes) if start < size else b""
    if more_follows or start + len(data) < size:
        return drop_partial_end(data) or data
    return data


def count_newlines(source: BinaryIO, position: int, index: LineIndex) -> int:
    """Return the number of newlines in the first `position` bytes of an output file."""
    mark = index.before_byte(position)
    count, left = mark.newlines, position - mark.size
    source.seek(mark.size)
    while left > 0 and (block := source.read(min(BLOCK_SIZE, left))):
        count, left = count + block.count(b"\n"), left - len(block)
    return count


def read_exactly(source: BinaryIO, count: int) -> bytes:
    """Read `count` bytes, or all bytes up to EOF, with as many reads as needed, because one read of
    a raw file may return fewer bytes."""
    pieces = []
    while count > 0 and (piece := source.read(count)):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def find_line_start(source: BinaryIO, number: int, index: LineIndex | None = None) -> int:
    """Return the offset where line `number`, counted from 1, begins; return the end of the output
    if there is no such line."""
    mark = (index or EMPTY_INDEX).before_line(number)
    before, at = number - 1 - mark.newlines, mark.size
    source.seek(at)
    while before > 0 and (block := source.read(BLOCK_SIZE)):
        end, passed = _skip_newlines(block, 0, before)
        before, at = before - passed, at + end
    return at


def _skip_newlines(block: bytes, start: int, count: int) -> tuple[int, int]:
    """Return the offset in a block after `count` newlines, or the block's end if it has fewer, and
    how many newlines were found."""
    there = block.count(b"\n", start)
    if there < count:
        return len(block), there
    end = start
    for _ in range(count):
        end = block.index(b"\n", end) + 1
    return end, count


def _find_last_lines(source: BinaryIO, size: int, count: int) -> int:
    """Return the offset where the last `count` lines of an output file begin."""
    at, wanted = size, count
    while at > 0 and wanted > 0:
        start = max(0, at - BLOCK_SIZE)
        source.seek(start)
        block = source.read(at - start)
        # A newline at the end of the output belongs to the last line and starts no further line.
        end = len(block) - (at == size and block.endswith(b"\n"))
        while wanted and (found := block.rfind(b"\n", 0, end)) >= 0:
            end = found
            wanted -= 1
        at = start + found + 1 if not wanted else start
    return at if count else size
