"""Regular-expression search in a command's output of any length, line by line.

Matching a regular expression that a model wrote may take forever and block the searching thread.
Because a search may take forever, it runs in a separate process, which can be killed: `python -c`
calls `main()`. The search process imports very few modules, because every search starts a new
process. The search process exits when its parent exits, and its CPU time is limited.

Patterns are matched against lines without colour codes. A line that redraws itself, such as a
progress bar, is matched in its last state. Line numbers start at 1. A very long line is searched
in pieces that overlap, so that memory stays bounded.
"""

import os
import re
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from nacre.text.clean import as_displayed, decode

if TYPE_CHECKING:  # type checking only: the search process must not load msgspec
    from nacre.model.requests import MatchedLine

BLOCK_SIZE: Final = 1024 * 1024
# Bytes that two successive pieces of a very long line share. A match of at most this length is in
# one of the pieces.
_OVERLAP: Final = 64 * 1024
_MAX_PIECE: Final = 2 * _OVERLAP  # a line without a newline is cut into pieces from this size on
MAX_SHOWN: Final = 2000  # maximum characters of a line in a search result
_MIN_SHOWN: Final = 80  # minimum characters of a long line in a search result
_LINE_NUMBER: Final = 8  # bytes that a search result needs for a line number
_CONTROLS: Final = re.compile(rb"[\x1b\r\b]")
# Regular-expression syntax that may match across a newline; with such a pattern, each line of a
# block is searched separately.
_CROSSES: Final = re.compile(r"\\[AZsWDB0-9]|\(\?|\[|\n|\\n|\\[xuU]|\\r")
# Seconds between two reads of a running command's output file: 0.01 at first, then doubled after
# each read up to 0.05.
_PAUSES: Final = (0.01, 0.05)
_NEWS: Final = 1.0  # seconds between two progress reports of the search process
_POSIX: Final = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "word": r"\w",
}


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression, which may use grep's character classes such as `[:alpha:]`.
    Raises re.error."""
    for name, members in _POSIX.items():
        pattern = pattern.replace(f"[:{name}:]", members)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern)
        except (OverflowError, RecursionError) as error:
            raise re.error(str(error)) from None


class FoundLine(NamedTuple):
    line: int
    text: str  # text of the line; for a long line, only the part around the match
    matches: bool  # True for a matching line, False for a context line


class _Block(NamedTuple):
    """A part of the output: complete lines, or one piece of a very long line."""

    first: int  # number of the block's first line, counted from the start of the output
    text: str  # only the last line of the output, and a piece of a very long line, lack a newline
    continues: bool = False  # whether the first line began in an earlier block
    unfinished: bool = False  # whether the block is a piece that the next block continues


def number_lines(found: "Iterable[FoundLine | MatchedLine]", *, separate: bool) -> Iterator[str]:
    """Format lines like `grep -n`: `12:` before a matching line, `11-` before a context line. With
    `separate`, a line `--` is inserted wherever line numbers are skipped."""
    last: int | None = None
    for each in found:
        gap = "--\n" if separate and last is not None and each.line > last + 1 else ""
        last = each.line
        yield f"{gap}{each.line}{':' if each.matches else '-'}{each.text}\n"


def grep(
    source: BinaryIO,
    pattern: re.Pattern[str],
    context: int = 0,
    first: int = 1,
    last: int | None = None,
    width: int = MAX_SHOWN,
) -> Iterator[FoundLine | int]:
    """Yield the lines that match `pattern`, with `context` lines before and after each match. As a
    progress report after each block of lines, yield the number of the next line to search. `source`
    is a stream of output that begins at line number `first`, and `last` is the number of the last
    line to search. Of a longer line, `width` characters are shown."""
    before: deque[FoundLine] = deque(maxlen=context)
    after = seen = matched = 0  # `seen`, `matched`: number of the last line read, and found
    for block in _blocks(source, first, last):
        # Without context lines, a match is reported at once, because searching the next line may
        # take forever.
        hits = {} if not context else {each.line: each for each in _matching(block, pattern, width)}
        if not context:
            for each in _matching(block, pattern, width):
                if each.line != matched:  # not another piece of the line found last
                    yield each
                matched = each.line
        elif not hits and not after:
            before.extend(each for each in _last_lines(block, context, width) if each.line > seen)
        else:
            for number, text in _lines(block):
                if number == matched or (number == seen and number not in hits):
                    continue  # another piece of a line that was handled
                if number in hits:
                    yield from (each for each in before if each.line < number)
                    before.clear()
                    yield hits[number]
                    after, matched = context, number
                elif after:
                    after -= 1
                    yield FoundLine(number, text[:width], False)
                else:
                    before.append(FoundLine(number, text[:width], False))
        seen = block.first + block.text.removesuffix("\n").count("\n")
        yield block.first + block.text.count("\n")


def _matching(
    block: _Block, pattern: re.Pattern[str], width: int = MAX_SHOWN
) -> Iterator[FoundLine]:
    lines = _lines(block)
    if not _CROSSES.search(pattern.pattern) and not pattern.flags & re.DOTALL:
        lines = _candidates(block, pattern)
    for number, text in lines:
        continues = block.continues and number == block.first
        # In a later piece of a line, `^` must not match at the start of the piece.
        hit = pattern.search(text, 1 if continues else 0)
        if hit and not (block.unfinished and _may_continue(hit, pattern)):
            shown = _around(text, hit.start(), width, continues, block.unfinished)
            yield FoundLine(number, shown, True)


def _may_continue(hit: re.Match[str], pattern: re.Pattern[str]) -> bool:
    """Return whether a match in an unfinished piece of a line is searched again in the next piece,
    because the match reaches the end of the piece. A match that begins before the next piece, as
    that of `ERROR.*`, counts at once, unless the pattern asks for the end of the line."""
    if hit.end() < len(hit.string):
        return False
    return "$" in pattern.pattern or len(hit.string[hit.start() :].encode()) <= _OVERLAP


def _candidates(block: _Block, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that may match, found by searching the whole block of lines at once. For a
    pattern that cannot match across newlines, searching a whole block finds the same lines as
    searching each line separately. In a block of many lines, the regular-expression engine skips
    lines without a match at full speed."""
    at, number, text = 0, block.first, block.text
    whole = re.compile(pattern.pattern, pattern.flags | re.MULTILINE)
    while at < len(text) and (hit := whole.search(text, at)):
        start = text.rfind("\n", 0, hit.start()) + 1
        number += text.count("\n", at, start)
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if start < len(text):
            yield number, text[start:end]
        at, number = end + 1, number + 1


def _around(text: str, at: int, width: int, continues: bool, unfinished: bool) -> str:
    """Return at most `width` characters of a line, around the match at offset `at`. `text` is
    the line, or a piece of it: `continues` if not the first piece, `unfinished` if not the last."""
    if len(text) <= width and not continues and not unfinished:
        return text
    room = width - 6
    start = max(0, min(at - room // 4, len(text) - room))
    end = start + room
    before = "..." if start or continues else ""
    return f"{before}{text[start:end]}{'...' if end < len(text) or unfinished else ''}"


def _last_lines(block: _Block, count: int, width: int) -> Iterator[FoundLine]:
    text = block.text.removesuffix("\n")
    last = block.first + text.count("\n")
    lines = text.rsplit("\n", count)[-count:]
    for number, line in enumerate(lines, last - len(lines) + 1):
        yield FoundLine(number, line[:width], False)


def _lines(block: _Block) -> Iterator[tuple[int, str]]:
    lines = block.text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    yield from enumerate(lines, block.first)


def _blocks(source: BinaryIO, first: int, last: int | None = None) -> Iterator[_Block]:
    """Read output from `source` and yield blocks of complete lines, and very long lines in pieces.
    A piece begins after the last carriage return, because the text before it was overwritten."""
    number, rest, continues = first, b"", False
    while (last is None or number <= last) and (data := source.read(BLOCK_SIZE)):
        if end := data.rfind(b"\n") + 1:
            lines = rest + data[:end]
            yield _block(number, lines, last)._replace(continues=continues)
            number, rest, continues = number + lines.count(b"\n"), data[end:], False
            continue
        rest += data
        if len(rest) > _MAX_PIECE and (overwritten := rest.rfind(b"\r", 0, -1) + 1):
            rest, continues = rest[overwritten:], False
        if len(rest) > _MAX_PIECE:
            yield _block(number, rest)._replace(continues=continues, unfinished=True)
            rest, continues = rest[-_OVERLAP:], True
    if rest and (last is None or number <= last):
        yield _block(number, rest, last)._replace(continues=continues)


def _block(first: int, data: bytes, last: int | None = None) -> _Block:
    text = decode(data)
    text = as_displayed(text) if _CONTROLS.search(data) else text
    if last is not None and first + text.count("\n") > last:
        text = "".join(f"{line}\n" for line in text.split("\n")[: last - first + 1])
    return _Block(first, text)


class GrowingSearch:
    """Repeated search in an output that still grows, from byte `since` on. `line` is the number of
    the output line that contains the byte at offset `since`. While the last line of the output has
    no newline, it is searched again each time that it has grown."""

    def __init__(
        self, source: BinaryIO, pattern: re.Pattern[str], line: int = 1, since: int = 0
    ) -> None:
        source.seek(since)
        self._source = source
        self._pattern = pattern
        self._line = line
        # The last line while it has no newline, or its last piece, and what of it was searched.
        self._rest = self._tried = b""
        self._continues = False

    def search_new(self) -> FoundLine | None:
        """Search the output that was added since the last call, and return the first matching line
        or None."""
        while data := self._source.read(BLOCK_SIZE):
            if end := data.rfind(b"\n") + 1:
                lines, data = self._rest + data[:end], data[end:]
                if (found := self._search(lines)) is not None:
                    return found
                self._line += lines.count(b"\n")
                self._rest, self._continues = b"", False
            self._rest += data
            if len(self._rest) > _OVERLAP and (overwritten := self._rest.rfind(b"\r", 0, -1) + 1):
                self._rest, self._continues = self._rest[overwritten:], False
            if len(self._rest) > _OVERLAP:
                if (found := self._search(self._rest)) is not None:
                    return found
                self._rest = self._tried = self._rest[-_OVERLAP:]
                self._continues = True
        if self._rest == self._tried:
            return None
        self._tried = self._rest
        return self._search(self._rest)

    def _search(self, data: bytes) -> FoundLine | None:
        block = _block(self._line, data)._replace(continues=self._continues)
        return next(_matching(block, self._pattern), None)


# The search process. The search process reads the query from stdin as one line of JSON, optionally
# followed by the output to search. The search process prints one line of JSON for each line found
# and for each progress report.


class SearchQuery(NamedTuple):
    """Query to the search process: the pattern, and which part of the output to search."""

    pattern: str
    path: str | None  # path of the output file; None: the output follows the query on stdin
    offset: int = 0  # byte offset where the search starts
    first: int = 1  # number of the line where the search starts
    last: int | None = None  # number of the last line to search; None: no limit
    context: int = 0  # number of context lines before and after each match
    max_bytes: int = 0  # limit for the total size of the lines found, in bytes
    seconds: float = 0.0  # time limit of the search, in seconds
    # Byte ranges with nacre's own notes in the output file.
    hidden: tuple[tuple[int, int], ...] = ()
    watch: bool = False  # whether to wait for more output until a line matches


class SearchResult(NamedTuple):
    """Lines that the search process found, and how far the process searched."""

    found: tuple[FoundLine, ...]
    line: int  # number of the first line that was not searched
    complete: bool  # whether all requested lines were searched


def encode_query(search: SearchQuery) -> bytes:
    import json

    return json.dumps([os.getpid(), *search]).encode() + b"\n"


def decode_result(output: bytes, first: int) -> SearchResult:
    """Parse what the search process printed, and skip invalid and incomplete lines, because the
    process may have been killed while it wrote a line."""
    import json

    found: list[FoundLine] = []
    line, over = first, False
    for each in output.split(b"\n")[:-1]:
        try:
            match json.loads(each):
                case [int(number), str(text), bool(hit)]:
                    found.append(FoundLine(number, text, hit))
                case {"at": int(number), "over": bool(over)}:
                    line = number
        except ValueError:
            continue
    return SearchResult(tuple(found), line, over)


def main() -> None:
    import json

    given = sys.stdin.buffer
    parent, *fields = json.loads(given.readline())
    search = SearchQuery(*fields)
    pattern = compile_pattern(search.pattern)
    if search.watch:
        _watch_file(search, pattern, parent)
        return
    room, due, output = search.max_bytes, time.monotonic() + search.seconds, time.monotonic()
    source = given if search.path is None else _open_source(search)
    at = search.first
    width = max(_MIN_SHOWN, min(MAX_SHOWN, search.max_bytes - _LINE_NUMBER))
    for each in grep(source, pattern, search.context, search.first, search.last, width):
        if isinstance(each, FoundLine):
            room -= len(each.text.encode()) + _LINE_NUMBER
            _write_result(list(each))
            at = each.line + 1
            if room < 0:
                _write_result({"at": at, "over": False})
                return
            continue
        at, moment = each, time.monotonic()
        if os.getppid() != parent:
            return
        if moment > due or moment > output + _NEWS:
            output = moment
            _write_result({"at": at, "over": False})
        if moment > due:
            return
    _write_result({"at": at, "over": True})


def _watch_file(search: SearchQuery, pattern: re.Pattern[str], parent: int) -> None:
    path, pause = search.path or "", _PAUSES[0]
    while not os.path.exists(path) and os.getppid() == parent:
        time.sleep(pause)
    with open(path, "rb", buffering=0) as source:
        growing = GrowingSearch(source, pattern, search.first, search.offset)
        while os.getppid() == parent:
            if (found := growing.search_new()) is not None:
                _write_result(list(found))
                return
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])


def _open_source(search: SearchQuery) -> BinaryIO:
    from nacre.text.hidden_ranges import HiddenRangesFile

    file = open(search.path or "", "rb", buffering=0)  # noqa: SIM115 - open until the process exits
    source: BinaryIO = HiddenRangesFile(file, tuple((start, end) for start, end in search.hidden))
    source.seek(search.offset)
    return source


def _write_result(what: Any) -> None:
    import json

    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
