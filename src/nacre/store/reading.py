"""Reading the output of a run, by lines and by what is in them, without having it in memory.

What is read may be terabytes, or one line of a gigabyte: it goes by in blocks.
"""

import io
import os
import re
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from nacre.events import Stream
from nacre.store import journal
from nacre.store.home import home
from nacre.store.journal import Begun, Ended, Stored
from nacre.store.record import runs
from nacre.text import decode

_BLOCK: Final = 1024 * 1024
# So much of a line is looked at, and shown, by a search.
_LONGEST: Final = 64 * 1024


class NoSuchRun(LookupError):
    """There is no such run in this workspace, or it was swept; the message is a sentence."""


class Run(Struct, frozen=True, kw_only=True):
    """What the store knows of a run."""

    number: int
    begun: Begun
    ended: Ended | None
    directory: str

    def stored(self, stream: Stream) -> Stored | None:
        if self.ended is None:
            return None
        return self.ended.output if stream is Stream.OUTPUT else self.ended.errors

    def path(self, stream: Stream) -> str:
        """Where the stream is, or would be, as a file."""
        return f"{self.directory}/{stream.value}"

    def small(self, stream: Stream) -> bytes | None:
        """The stream itself, when it rides in the journal."""
        kept = self.stored(stream)
        return None if kept is None else kept.data

    def check(self, stream: Stream) -> None:
        """Raises NoSuchRun when the stream is nowhere."""
        if self.small(stream) is None and not os.path.isfile(self.path(stream)):
            raise NoSuchRun(self._why_not(stream))

    def open(self, stream: Stream = Stream.OUTPUT) -> BinaryIO:
        """The stream. Raises NoSuchRun when it is nowhere, OSError when it cannot be read."""
        self.check(stream)
        if (data := self.small(stream)) is not None:
            return io.BytesIO(data)
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(self.path(stream), flags), "rb", buffering=0)

    def _why_not(self, stream: Stream) -> str:
        kept = self.stored(stream)
        name = f"r{self.number}"
        if self.ended is None:
            return (
                f"{name} has not ended, or the process that ran it was killed; "
                "none of its output is stored yet"
            )
        if kept is None:
            return f"{name} has its errors in its output; read that"
        return f"the output of {name} was not kept: {kept.problem or 'it was swept, or removed'}"


def number(text: str) -> int:
    """`17`, `r17` or `artifact://17`. Raises NoSuchRun for anything else."""
    digits = text.removeprefix("artifact://").rstrip("/").removeprefix("r")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise NoSuchRun(f"{text!r} is no run; write its number, as in 17, r17 or artifact://17")
    return int(digits)


def find(run: int, workspace: bytes) -> Run:
    """Raises NoSuchRun, also for a run of another workspace, and OSError without a home."""
    place = home()
    directory = f"{runs(place)}/r{run}"
    begun, ended = _in_directory(directory)
    if begun is None:
        begun, ended = journal.find(place, workspace, run)
    if begun is None or begun.workspace != decode(workspace):
        where = decode(workspace)
        raise NoSuchRun(f"there is no run r{run} in this workspace ({where}), or it was swept")
    return Run(number=run, begun=begun, ended=ended, directory=directory)


def _in_directory(path: str) -> tuple[Begun | None, Ended | None]:
    begun, ended = _line(f"{path}/plan"), _line(f"{path}/outcome")
    if not isinstance(begun, Begun):
        return None, None
    return begun, ended if isinstance(ended, Ended) else None


def _line(path: str) -> Begun | Ended | None:
    try:
        with open(path, "rb") as file:
            return journal.decode(file.read())
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


def lines(source: BinaryIO, first: int = 1, last: int | None = None) -> Iterator[bytes]:
    """The bytes of these lines, counted from 1, the last one included."""
    before = first - 1  # lines yet to be passed over
    left = None if last is None else last - first + 1
    while (left is None or left > 0) and (block := source.read(_BLOCK)):
        start = 0
        if before:
            start, passed = _after(block, 0, before)
            before -= passed
            if before:
                continue
        if left is None:
            end = len(block)
        else:
            end, taken = _after(block, start, left)
            left -= taken
        if end > start:
            yield block[start:end]


def _after(block: bytes, start: int, count: int) -> tuple[int, int]:
    """Where the block goes on after so many newlines, and how many there were."""
    there = block.count(b"\n", start)
    if there < count:
        return len(block), there
    end = start
    for _ in range(count):
        end = block.index(b"\n", end) + 1
    return end, count


def tail(source: BinaryIO, count: int) -> Iterator[bytes]:
    """The bytes of the last so many lines."""
    size = source.seek(0, os.SEEK_END)
    at, wanted = size, count
    while at > 0 and wanted > 0:
        start = max(0, at - _BLOCK)
        source.seek(start)
        block = source.read(at - start)
        # The newline that ends the last line ends no line before it.
        end = len(block) - (at == size and block.endswith(b"\n"))
        while wanted and (found := block.rfind(b"\n", 0, end)) >= 0:
            end = found
            wanted -= 1
        at = start + found + 1 if not wanted else start
    source.seek(at if count else size)
    while block := source.read(_BLOCK):
        yield block


class Found(Struct, frozen=True, kw_only=True):
    line: int
    text: bytes  # without its newline; at most the beginning of a very long one
    matches: bool  # else it stands near one that does


def grep(source: BinaryIO, pattern: re.Pattern[bytes], context: int = 0) -> Iterator[Found]:
    """The lines that match, with so many around each."""
    before: deque[Found] = deque(maxlen=context)
    after = 0
    for number, text in _numbered(source):
        if pattern.search(text):
            yield from before
            before.clear()
            yield Found(line=number, text=text, matches=True)
            after = context
        elif after:
            after -= 1
            yield Found(line=number, text=text, matches=False)
        else:
            before.append(Found(line=number, text=text, matches=False))


def _numbered(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number, rest = 1, b""
    while block := source.read(_BLOCK):
        *whole, last = block.split(b"\n")
        for each in whole:
            yield number, (rest + each)[:_LONGEST]
            number, rest = number + 1, b""
        rest = (rest + last)[:_LONGEST]
    if rest:
        yield number, rest
