"""Output for reading: what a model gets to see of what a command printed. Pure.

Each line as a terminal shows it in the end: colours gone, progress in its last state, binary data
described. Identical neighbours become `line (×43)`, very long lines lose their middle. What is then
still more than fits loses *its* middle: a head and a tail are shown, of exactly as many bytes as
may be, so that more output never makes for a shorter reply; what is left out is known by lines.

Of megabytes, only what may be shown is looked at.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from msgspec import Struct

from nacre.outcome import Capture
from nacre.text import binary, decode, looks_binary, settled

LINE: Final = 2000  # characters of a line
_HEAD: Final = 4  # one part in so many is for the beginning
_CONTROLS: Final = b"\x1b\r\b"
_REPEATS: Final = 256  # identical lines that are passed over at once
_WORTHWHILE: Final = 8  # bytes of a line
_MARK: Final = "..."  # where a line is cut to fill the room there is


class Left(Struct, frozen=True, kw_only=True):
    """What is not shown: lines, from 1 and inclusive, of which the first and the last may be
    shown in part; and bytes."""

    first: int
    last: int
    size: int


class Rendered(Struct, frozen=True, kw_only=True):
    head: str  # all of it, when nothing was left out
    tail: str = ""
    left: Left | None = None
    shown: tuple[tuple[int, int], ...] = ()  # lines, whole ones
    spare: int = 0  # bytes of the room that were too few for a part of a line

    @property
    def cut(self) -> bool:
        return self.left is not None


class _Entry(NamedTuple):
    """One line to show, which may stand for several."""

    first: int
    last: int
    start: int  # where the first of them begins, and the last one ends, its newline included
    end: int
    text: str
    close: str = "\n"  # or nothing, at the end of output that has none

    @property
    def room(self) -> int:
        """In bytes, with its newline."""
        return len(self.text.encode()) + len(self.close)


def render(capture: Capture, most: int, *, first: int = 1, start: int = 0) -> Rendered:
    """At most so many bytes of it. The capture begins with this line, at this byte."""
    if (described := _described(capture)) is not None:
        return Rendered(head=described, shown=_all(capture, first))
    if capture.omitted:
        return _of_window(capture, most, first, start)
    data = capture.head + capture.tail
    if len(data) <= most and _is_plain(data):  # most output is like that
        text = decode(data)
        if not _has_twins(text):
            return Rendered(head=text, shown=_all(capture, first))
    entries = _Entries(data, first, start)
    if entries.fit(most):
        return Rendered(head=_joined(entries.found), shown=_range(entries.found))
    return _cut(entries, data, capture, most, first, start)


def _all(capture: Capture, first: int) -> tuple[tuple[int, int], ...]:
    return ((first, first + capture.lines - 1),) if capture.lines else ()


def _described(capture: Capture) -> str | None:
    what = binary(capture.head or capture.tail, capture.size)
    return None if what is None else f"[{what}]\n"


def _is_plain(data: bytes) -> bool:
    """Whether it is its own rendering, but for neighbours that are the same."""
    if any(control in data for control in _CONTROLS) or b"\0" in data:
        return False
    return max(map(len, data.split(b"\n"))) <= LINE


def _has_twins(text: str) -> bool:
    lines = text.split("\n")
    return any(one == two for one, two in pairwise(lines))


class _Entries:
    """The lines of some bytes, made as they are asked for."""

    def __init__(self, data: bytes, first: int, start: int) -> None:
        self._made = _entries(data, first, start)
        self.found: list[_Entry] = []
        self.room = 0

    def fit(self, most: int) -> bool:
        """Whether all of them do; made are those that do, and one more."""
        while self.room <= most:
            entry = next(self._made, None)
            if entry is None:
                return True
            self.found.append(entry)
            self.room += entry.room
        return False

    def all(self) -> list[_Entry]:
        self.found += self._made
        return self.found


def _entries(data: bytes, number: int, offset: int) -> Iterator[_Entry]:
    at, end = 0, len(data)
    held: list[_Entry] = []  # identical ones
    while at < end:
        newline = data.find(b"\n", at)
        stop = end if newline < 0 else newline
        raw, after = data[at:stop], stop + 1 if newline >= 0 else end
        count = 1 + _repeated(data, raw + b"\n", after) if newline >= 0 else 1
        after += (count - 1) * (len(raw) + 1)
        text = _line(raw, offset + at)
        close = "" if newline < 0 else "\n"
        entry = _Entry(number, number + count - 1, offset + at, offset + after, text, close)
        if held and held[-1].text != text:
            yield from _folded(held)
            held = []
        held.append(entry)
        number, at = number + count, after
    if held:
        yield from _folded(held)


def _repeated(data: bytes, line: bytes, at: int) -> int:
    """How often the very same line comes again."""
    count, many = 0, b""
    while data.startswith(line, at):
        count, at = count + 1, at + len(line)
        if count >= _REPEATS and len(line) < 4096:
            many = many or line * _REPEATS
            while data.startswith(many, at):
                count, at = count + _REPEATS, at + len(many)
    return count


def _folded(held: list[_Entry]) -> Iterator[_Entry]:
    text, first, last = held[0].text, held[0], held[-1]
    count = last.last - first.first + 1
    short = f"{text} (×{count})"
    if count > 1 and len(short) < count * (len(text) + 1) - 1:
        yield first._replace(last=last.last, end=last.end, text=short, close=last.close)
        return
    for entry in held:
        size = (entry.end - entry.start) // (entry.last - entry.first + 1)
        for each in range(entry.last - entry.first + 1):
            at, number = entry.start + each * size, entry.first + each
            yield _Entry(number, number, at, at + size, text, entry.close)


def _line(raw: bytes, offset: int) -> str:
    text = decode(raw)
    if ("\0" in text or "\ufffd" in text) and looks_binary(raw[:8192]):
        return f"[{len(raw):,} bytes of binary data]"
    if any(control in raw for control in _CONTROLS):
        text = settled(text)
    if len(text) <= LINE:
        return text
    left = len(text) - LINE
    mark = f"...[{left:,} characters left out; since {offset}]..."
    # What the mark takes is left out, too.
    mark = f"...[{left + len(mark):,} characters left out; since {offset}]..."
    room = LINE - len(mark)
    return text[: room - room // _HEAD] + mark + text[len(text) - room // _HEAD :]


def _joined(entries: Sequence[_Entry]) -> str:
    return "".join(entry.text + entry.close for entry in entries)


def _range(entries: Sequence[_Entry]) -> tuple[tuple[int, int], ...]:
    return ((entries[0].first, entries[-1].last),) if entries else ()


# Cutting.


def _cut(
    entries: _Entries, data: bytes, capture: Capture, most: int, first: int, start: int
) -> Rendered:
    head = most // _HEAD
    if len(data) <= 16 * (most + LINE):
        made = entries.all()
        count, _ = _fitting(made, head)
        return _made(made[:count], made[count:], capture, most, first)
    count, _ = _fitting(entries.found, head)
    before = entries.found[: count + 1]
    behind = before[-1].end - start
    after = _last(data[behind:], most - head, first + capture.newlines, start + behind)
    return _made(before[:count], [*before[count:], *after], capture, most, first)


def _of_window(capture: Capture, most: int, first: int, start: int) -> Rendered:
    """Something in the middle is not even here."""
    whole = capture.head[: capture.head.rfind(b"\n") + 1]
    entries = _Entries(whole, first, start)
    fits = entries.fit(most)
    room = most - entries.room if fits else most - most // _HEAD
    behind = start + capture.size - len(capture.tail)
    tail, partial = capture.tail, capture.tail.find(b"\n") + 1
    redrawn = capture.tail.rfind(b"\r", 0, max(partial - 2, 0) if partial else len(tail)) + 1
    skipped = redrawn or partial  # a line that redraws itself is known by its last state
    after = _last(tail[skipped:], room, first + capture.newlines, behind + skipped)
    count = len(entries.found) if fits else _fitting(entries.found, most // _HEAD)[0]
    return _made(entries.found[:count], [*entries.found[count:], *after], capture, most, first)


def _last(data: bytes, most: int, last: int, start: int) -> list[_Entry]:
    """The last lines, as many as have so many bytes, and one more. `last` is the number of the
    line that the end of the data belongs to."""
    size = 2 * most + LINE
    while True:
        at = data.find(b"\n", len(data) - size - 1) + 1 if size < len(data) else 0
        if not at and size < len(data) and b"\n" in data[len(data) - size - 1 :]:
            at = len(data) - size
        part = data[at:]
        made = list(_entries(part, last - part.count(b"\n"), start + at))
        if not at or sum(entry.room for entry in made[1:]) >= most:
            return made
        size *= 4


def _fitting(entries: Sequence[_Entry], room: int) -> tuple[int, int]:
    """How many of the first ones have room, and how much they take."""
    sums = list(accumulate((entry.room for entry in entries), initial=0))
    count = sum(1 for each in sums[1:] if each <= room)
    return count, sums[count]


def _made(
    before: list[_Entry],
    rest: list[_Entry],
    capture: Capture,
    most: int,
    first: int,
) -> Rendered:
    """Those before, whole, and as many of the last as there is room for. The room that is left on
    either side has parts of lines."""
    used = sum(entry.room for entry in before)
    head_room = most // _HEAD - used
    if head_room < 0 or not rest:
        head_room = 0
    room = most - used - head_room
    count, taken = _fitting(rest[::-1], room)
    after = rest[len(rest) - count :]
    middle = rest[: len(rest) - count]
    if not middle and not capture.omitted:
        return Rendered(head=_joined([*before, *after]), shown=_range([*before, *after]))
    opening = _fragment(middle[0].text, head_room, front=True) if middle and head_room else ""
    closing = _fragment(middle[-1].text, room - taken, front=False) if middle else ""
    spare = head_room + room - taken - len((opening + closing).encode()) if middle else 0
    shown = sum(each.end - each.start for each in (*before, *after))
    left_first = before[-1].last + 1 if before else first
    left_last = after[0].first - 1 if after else first + capture.lines - 1
    size = capture.size - shown - len(opening.encode()) - len(closing.encode())
    return Rendered(
        head=_joined(before) + opening,
        tail=closing + _joined(after),
        left=Left(first=left_first, last=max(left_first, left_last), size=max(size, 0)),
        shown=(*_range(before), *_range(after)),
        spare=max(0, spare),
    )


def _fragment(text: str, room: int, *, front: bool) -> str:
    """A part of a line, and a newline: so many bytes, but for the last character. Nothing, where
    that would be next to nothing."""
    raw, kept = text.encode(), room - 1 - len(_MARK)
    if kept < _WORTHWHILE:
        return ""
    if len(raw) < room:
        return f"{text}\n"
    if front:
        return f"{raw[:kept].decode('utf-8', 'ignore')}{_MARK}\n"
    return f"{_MARK}{raw[len(raw) - kept :].decode('utf-8', 'ignore')}\n"
