"""Finding what matches in output of any length: line by line, as a person would see the lines.

A pattern that a model has written may take for ever, on the thread of whoever tries it. So it is
tried in a process of its own, which can be killed; `python -c` with `main()` is that process. It
loads next to nothing: it is started for every search.

Patterns are tried on lines without colour codes, and on the last state of those that redraw
themselves. Lines are counted from 1.
"""

import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from nacre.text import decode, settled

BLOCK: Final = 1024 * 1024
LONGEST: Final = 64 * 1024  # so many characters of a line are looked at
_CONTROLS: Final = re.compile(rb"[\x1b\r\b]")
# What makes the lines of a block depend on each other, or look at more than a line.
_CROSSES: Final = re.compile(r"\\[AZsWDB0-9]|\(\?|\[\^|\n|\\n|\\[xuU]|\\r")
# How soon a file that grows is looked at again, at first and in the end.
_PAUSES: Final = (0.01, 0.05)


class Found(NamedTuple):
    line: int
    text: str  # at most the beginning of a very long one
    matches: bool  # else it stands near one that does


class _Block(NamedTuple):
    first: int  # the number of its first line
    text: str  # whole lines, each with its newline but perhaps the last


def grep(
    source: BinaryIO, pattern: re.Pattern[str], context: int = 0, first: int = 1
) -> Iterator[Found]:
    """The lines that match, with so many around each. `first` is the number of the line where the
    source stands."""
    before: deque[Found] = deque(maxlen=context)
    after = 0
    for block in _blocks(source, first):
        if not context:
            yield from _matching(block, pattern)
            continue
        hits = {found.line for found in _matching(block, pattern)}
        if not hits and not after:
            before.extend(_last_lines(block, context))
            continue
        for number, text in _lines(block):
            if number in hits:
                yield from before
                before.clear()
                yield Found(number, text, True)
                after = context
            elif after:
                after -= 1
                yield Found(number, text, False)
            else:
                before.append(Found(number, text, False))


def _matching(block: _Block, pattern: re.Pattern[str]) -> Iterator[Found]:
    if _CROSSES.search(pattern.pattern) or pattern.flags & re.DOTALL:
        for number, text in _lines(block):
            if pattern.search(text):
                yield Found(number, text, True)
        return
    # No match can reach over a line: the whole block is searched at once, which passes over what
    # does not match as fast as the expression can.
    at, number, text = 0, block.first, block.text
    whole = re.compile(pattern.pattern, pattern.flags | re.MULTILINE)
    while at < len(text) and (hit := whole.search(text, at)):
        start = text.rfind("\n", 0, hit.start()) + 1
        number += text.count("\n", at, start)
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if start < len(text):
            yield Found(number, text[start : min(end, start + LONGEST)], True)
        at, number = end + 1, number + 1


def _last_lines(block: _Block, count: int) -> Iterator[Found]:
    text = block.text.removesuffix("\n")
    last = block.first + text.count("\n")
    lines = text.rsplit("\n", count)[-count:]
    for number, line in enumerate(lines, last - len(lines) + 1):
        yield Found(number, line[:LONGEST], False)


def _lines(block: _Block) -> Iterator[tuple[int, str]]:
    lines = block.text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, block.first):
        yield number, line[:LONGEST]


def _blocks(source: BinaryIO, first: int) -> Iterator[_Block]:
    """Whole lines, some at a time. Of one that is longer than a block only the beginning."""
    number, rest, cut = first, b"", False
    while data := source.read(BLOCK):
        end = data.rfind(b"\n") + 1
        if not end:
            rest += data[: max(0, LONGEST - len(rest))] if cut or len(rest) > LONGEST else data
            cut = True
            continue
        whole, cut = rest + data[:end], False
        yield _block(number, whole)
        number, rest = number + whole.count(b"\n"), data[end:]
    if rest:
        yield _block(number, rest)


def _block(first: int, data: bytes) -> _Block:
    text = decode(data)
    return _Block(first, settled(text) if _CONTROLS.search(data) else text)


def wait_for(source: BinaryIO, pattern: re.Pattern[str], since: int) -> Found:
    """The first line that matches, of output that grows, from this byte on; an unterminated last
    line counts as it stands. Returns when there is one."""
    source.seek(0)
    number, at = 1, 0
    while at < since and (data := source.read(min(BLOCK, since - at))):
        number, at = number + data.count(b"\n"), at + len(data)
    rest, tried, pause = b"", b"", _PAUSES[0]
    while True:
        data = source.read(BLOCK)
        if not data:
            if rest != tried:
                tried = rest
                if pattern.search(settled(decode(rest))[:LONGEST]):
                    return Found(number, settled(decode(rest))[:LONGEST], True)
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])
            continue
        pause = _PAUSES[0]
        end = data.rfind(b"\n") + 1
        if end:
            block = _block(number, rest + data[:end])
            for found in _matching(block, pattern):
                return found
            number += (rest + data[:end]).count(b"\n")
            rest = b""
        rest = (rest + data[end:])[-LONGEST:]


# The process of its own. It reads one line of JSON, and perhaps the output itself behind it; and
# says one line of JSON for each that it has found.


def main() -> None:
    import json

    given = sys.stdin.buffer
    asked = json.loads(given.readline())
    pattern = re.compile(asked["pattern"])
    if asked["watch"]:
        found = wait_for(_opened(asked["path"]), pattern, asked["since"])
        _say(json.dumps(found))
        return
    source = given if asked["path"] is None else _unmarked(asked)
    left = asked["most"]
    for found in grep(source, pattern, asked["context"], asked["first"]):
        if asked["last"] is not None and found.line > asked["last"]:
            break
        line = json.dumps(found)
        left -= len(line)
        _say(line)
        if left < 0:
            _say(json.dumps("more"))
            return
    _say(json.dumps("over"))


def _unmarked(asked: "dict[str, object]") -> BinaryIO:
    from nacre.unmarked import Unmarked

    marks = tuple((start, end) for start, end in asked["marks"])  # type: ignore[attr-defined]
    source: BinaryIO = Unmarked(open(str(asked["path"]), "rb", buffering=0), marks)  # noqa: SIM115
    source.seek(int(str(asked["offset"])))
    return source


def _opened(path: str) -> BinaryIO:
    """It may not be there yet."""
    while not os.path.exists(path):
        time.sleep(_PAUSES[0])
    return open(path, "rb", buffering=0)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
