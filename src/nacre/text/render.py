"""Pure functions that render a command's output as text for the model.

Each line is rendered as a terminal finally shows it: without colours, with progress bars in their
last state, and with a description in place of binary data. An output that fits into the byte limit
is shown with every line complete. An output that exceeds the byte limit is shortened in this order:

    fold      identical adjacent lines become one line and `[previous line repeated 42 more times]`
    shorten   a line of more than 2,000 characters loses its middle, but no more than necessary
    cut       only a head and a tail of the output are shown

The head and the tail of a long output together fill the byte limit, so that, apart from folded
lines, a longer output never results in a shorter reply. The lines that are omitted between the head
and the tail of an output are reported by their line numbers.

Of an output of many megabytes, only the bytes that may be shown are processed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from nacre.model.outcome import Capture
from nacre.text.clean import (
    as_displayed,
    decode,
    describe_binary,
    describe_part,
    fit_end,
    fit_start,
    looks_binary,
    split_at_binary,
)

# Only a line with more characters loses its middle, unless the byte limit itself is smaller.
MAX_LINE: Final = 2000
# Minimum byte limit in which a long line is shown with both its ends and a note.
_LEAST_FOR_ENDS: Final = 300
_UNLIMITED: Final = 1 << 62  # line limit for an output whose lines are shown complete
# Divisor: an output's head gets a quarter of the byte limit, and a long line's end gets a quarter
# of the line limit.
_HEAD: Final = 4
_CONTROLS: Final = b"\x1b\r\b"
_REPEATS: Final = 256  # number of identical lines that `_count_repeats` checks in one step
_WORTHWHILE: Final = 8  # minimum bytes to show of a cut line; a shorter part is not shown
_MAX_ESCAPES: Final = 16  # a long line with colour codes is displayed from 16 times as many bytes
_MARK: Final = "..."  # text shown where a line is cut to fill the byte limit


class Omitted(Struct, frozen=True, kw_only=True):
    """Part of an output that is not shown: the lines `first` to `last`, inclusive, counted from 1.
    The first and the last of the omitted lines may be shown in part."""

    first: int
    last: int
    byte: int  # byte offset where the omitted part starts
    size: int  # size of the omitted part of the output, in bytes


class Rendered(Struct, frozen=True, kw_only=True):
    head: str  # rendered head of the output; the whole output if nothing was omitted
    tail: str = ""
    omitted: Omitted | None = None
    # Ranges of output lines that are shown, each as (first line number, last line number).
    shown: tuple[tuple[int, int], ...] = ()
    shortened: bool = False  # whether a shown line was too long and lost its middle
    # Unused rest of the output's byte limit, in bytes; too small to show a part of another line.
    spare: int = 0
    binary: bool = False  # whether `head` describes binary data instead of showing it

    @property
    def cut(self) -> bool:
        return self.omitted is not None or self.shortened


class _Entry(NamedTuple):
    """One rendered line, which may represent several identical lines of the output."""

    first: int
    last: int
    start: int  # byte offset of the first output line that this rendered line represents
    end: int  # byte offset right after the last output line that this rendered line represents
    raw: bytes  # the output line without its newline
    text: str
    close: str  # newline at the end of the line; empty if the output ends without a newline
    short: bool  # whether the line was too long and lost its middle

    @property
    def room(self) -> int:
        """Size of the rendered line in bytes, including its newline."""
        size = len(self.text) if self.text.isascii() else len(self.text.encode())
        return size + len(self.close)


class _Lines(NamedTuple):
    """Section of an output, with its line number and byte offset in the output."""

    data: bytes
    first: int  # number of the line that contains the first byte of `data`
    start: int  # offset of `data` in the output, in bytes
    style: "_Style"


class _Style(NamedTuple):
    """How lines are rendered."""

    read_call: Callable[[int], str]
    fold: bool  # whether identical adjacent lines are folded
    longest: int = MAX_LINE  # maximum characters of a rendered line


def _read_since(byte: int) -> str:
    return f"since {byte}"


def render(
    capture: Capture,
    max_bytes: int,
    *,
    first: int = 1,
    start: int = 0,
    fold: bool = True,
    read_call: Callable[[int], str] = _read_since,
) -> Rendered:
    """Render captured output in at most `max_bytes` bytes. The captured output begins at line
    number `first` and byte offset `start` of the command's output. `fold` allows folding identical
    adjacent lines of an output that does not fit. `read_call` returns, for a byte offset of the
    output, the text of the call that reads the output from this offset on."""
    whole = ((first, first + capture.lines - 1),) if capture.lines else ()
    what = describe_binary(capture.head or capture.tail, capture.size)
    if what is not None and capture.omitted:
        # Of an output that is too large to keep, only the captured tail is known to be text.
        if not split_at_binary(capture.tail)[2]:
            return Rendered(head=f"[{what}]\n", shown=whole, binary=True)
    elif what is not None:
        render_text = partial(render, fold=fold, read_call=read_call)
        return _render_around_binary(capture, max_bytes, first, start, render_text)
    data = capture.head if capture.omitted else capture.head + capture.tail
    longest = min(MAX_LINE, max_bytes - 1) if max_bytes >= _LEAST_FOR_ENDS else MAX_LINE
    lines = _Lines(data, first, start, _Style(read_call, fold, longest))
    if capture.omitted:
        return _render_window(capture, max_bytes, lines)
    # Fast path: most output is short, and is shown as the command wrote it.
    if len(data) <= max_bytes and _is_plain(data):
        text = decode(data)
        # An invalid UTF-8 byte becomes a replacement character, which takes three bytes.
        if "\ufffd" not in text or len(text.encode()) <= max_bytes:
            return Rendered(head=text, shown=whole)
    exact = lines._replace(style=_Style(read_call, fold=False, longest=_UNLIMITED))
    found, over = _take_fitting(_entries(exact), max_bytes)
    if over is None:
        return Rendered(head=_join_entries(found), shown=_range(found))
    found, over = _take_fitting(_entries(lines), max_bytes)
    if over is None:
        found = _with_longer_lines(found, lines, max_bytes)
        shortened = any(entry.short for entry in found)
        return Rendered(head=_join_entries(found), shown=_range(found), shortened=shortened)
    before, after = _take_fitting(found, max_bytes // _HEAD)
    behind = (before[-1].end if before else start) - start
    rest = lines._replace(data=lines.data[behind:], start=start + behind)
    return _cut_middle(before, after, rest, capture, max_bytes, first)


def _render_around_binary(
    capture: Capture, max_bytes: int, first: int, start: int, render_text: Callable[..., Rendered]
) -> Rendered:
    """Render a complete output that looks binary: the text lines before and after the binary part
    are shown, and the binary part is described. `render_text` renders the lines after it."""
    before, binary, after = split_at_binary(capture.head + capture.tail)
    head = f"{as_displayed(decode(before))}[{describe_part(binary)}]\n"
    if len(head.encode()) > max_bytes // 2:
        before, binary = b"", before + binary
        head = f"[{describe_part(binary)}]\n"
    skipped = len(before) + len(binary)
    line = first + (before + binary).count(b"\n")
    rest = Capture(
        head=after,
        size=len(after),
        newlines=after.count(b"\n"),
        unterminated=capture.unterminated and bool(after),
    )
    room = max(0, max_bytes - len(head.encode()))
    behind = render_text(rest, room, first=line, start=start + skipped)
    shown = [(first, max(first, line - 1)), *behind.shown]
    if len(shown) > 1 and shown[1][0] == line:
        shown[:2] = [(first, shown[1][1])]
    return replace(
        behind, head=head + behind.head, shown=tuple(shown), binary=not (before or after)
    )


def render_page(capture: Capture, first: int) -> Rendered:
    """Render one page of an output without folding or shortening lines, so that a reader of all
    pages sees every line once."""
    shown = ((first, first + capture.lines - 1),) if capture.lines else ()
    data = capture.head + capture.tail
    if describe_binary(data) is None:
        return Rendered(head=as_displayed(decode(data)), shown=shown)
    before, binary, after = split_at_binary(data)
    texts = [as_displayed(decode(part)) for part in (before, after)]
    description = f"[{describe_part(binary)}]\n"
    return Rendered(head=description.join(texts), shown=shown, binary=not (before or after))


def count_fitting_lines(data: bytes, max_bytes: int) -> int:
    """Return how many of the first lines of an output fit into `max_bytes` bytes when they are
    rendered without folding or shortening."""
    style = _Style(_read_since, fold=False, longest=_UNLIMITED)
    return len(_take_fitting(_entries(_Lines(data, 1, 0, style)), max_bytes)[0])


def _is_plain(data: bytes) -> bool:
    """Return whether rendering leaves an output unchanged that fits into the byte limit."""
    return not any(control in data for control in _CONTROLS) and b"\0" not in data


def _with_longer_lines(found: list[_Entry], lines: _Lines, max_bytes: int) -> list[_Entry]:
    """Render the lines that lost their middle again, with the highest line limit with which all
    lines fit; otherwise a longer line could give a shorter reply."""
    cut = [entry for entry in found if entry.short]
    room = max_bytes - sum(entry.room for entry in found if not entry.short)
    shown = [(entry, _display_line(entry.raw)) for entry in cut]
    low, high, best = lines.style.longest, max_bytes, cut
    while low < high and cut:
        limit = (low + high + 1) // 2
        style = lines.style._replace(longest=limit)
        longer = [_lengthen(entry, text, style) for entry, text in shown]
        if sum(entry.room for entry in longer) <= room:
            low, best = limit, longer
        else:
            high = limit - 1
    again = iter(best)
    return [next(again) if entry.short else entry for entry in found]


def _lengthen(entry: _Entry, text: str, style: _Style) -> _Entry:
    """Render the line of an entry again with another line limit. `text` is the complete line."""
    short = len(text) > style.longest
    again = _without_middle(text, entry.raw, entry.start, style) if short else text
    _, newline, note = entry.text.partition("\n")  # the note on the repetitions of the line
    return entry._replace(text=again + newline + note, short=short)


def _take_fitting(entries: Iterable[_Entry], room: int) -> tuple[list[_Entry], _Entry | None]:
    """Return the first rendered lines that fit into `room` bytes, and the next rendered line, which
    does not fit (None if all lines fit)."""
    found: list[_Entry] = []
    for entry in entries:
        room -= entry.room
        if room < 0:
            return found, entry
        found.append(entry)
    return found, None


# Functions that render single lines.


def _entries(lines: _Lines) -> Iterator[_Entry]:
    """Render the lines lazily, one at a time, and fold identical adjacent lines into one."""
    data, number, offset = lines.data, lines.first, lines.start
    at, end = 0, len(data)
    repeats: list[_Entry] = []  # adjacent rendered lines with the same text
    while at < end:
        newline = data.find(b"\n", at)
        stop = end if newline < 0 else newline
        raw, after = data[at:stop], stop + 1 if newline >= 0 else end
        count = 1 + _count_repeats(data, raw + b"\n", after) if newline >= 0 else 1
        after += (count - 1) * (len(raw) + 1)
        text, short = _show_line(raw, offset + at, lines.style)
        close = "" if newline < 0 else "\n"
        last = number + count - 1
        entry = _Entry(number, last, offset + at, offset + after, raw, text, close, short)
        number, at = last + 1, after
        if not lines.style.fold:
            yield from _unfold([entry])
            continue
        if repeats and repeats[-1].text != text:
            yield from _fold_repeats(repeats)
            repeats = []
        repeats.append(entry)
    if repeats:
        yield from _fold_repeats(repeats)


def _count_repeats(data: bytes, line: bytes, at: int) -> int:
    """Return how many times in a row `line` occurs in `data` from byte offset `at` on."""
    count, many = 0, b""
    while data.startswith(line, at):
        count, at = count + 1, at + len(line)
        if count >= _REPEATS and len(line) < 4096:
            many = many or line * _REPEATS
            while data.startswith(many, at):
                count, at = count + _REPEATS, at + len(many)
    return count


def _fold_repeats(repeats: list[_Entry]) -> Iterator[_Entry]:
    text, first, last = repeats[0].text, repeats[0], repeats[-1]
    count = last.last - first.first + 1
    more = count - 1
    short = f"{text}\n[previous line repeated {more:,} more time{'s' if more > 1 else ''}]"
    if len(short) < count * (len(text) + 1) - 1:
        yield first._replace(last=last.last, end=last.end, text=short, close=last.close)
    else:
        yield from _unfold(repeats)


def _unfold(repeats: list[_Entry]) -> Iterator[_Entry]:
    """Yield one entry for each output line."""
    for entry in repeats:
        size = (entry.end - entry.start) // (entry.last - entry.first + 1)
        for each in range(entry.last - entry.first + 1):
            at, number = entry.start + each * size, entry.first + each
            yield entry._replace(first=number, last=number, start=at, end=at + size)


def _show_line(raw: bytes, offset: int, style: _Style) -> tuple[str, bool]:
    """Return the rendered text of a line, and whether the line was too long and lost its middle."""
    text = _display_line(raw)
    if len(text) <= style.longest:
        return text, False
    return _without_middle(text, raw, offset, style), True


def _display_line(raw: bytes) -> str:
    text = decode(raw)
    if ("\0" in text or "\ufffd" in text) and looks_binary(raw[:8192]):
        return f"[{len(raw):,} bytes of binary data]"
    if any(control in raw for control in _CONTROLS):
        text = as_displayed(text)
    return text.replace("\0", "\ufffd") if "\0" in text else text


def _without_middle(text: str, raw: bytes, offset: int, style: _Style) -> str:
    """Return the two ends of a long line, joined by a note that says how many characters are
    missing and at which byte of the output the missing part starts."""
    is_raw = len(text.encode()) == len(raw)
    # To reserve room for the note about a line's missing middle, the note is first built with the
    # largest numbers that it can contain, because its length depends on its numbers.
    mark = _missing(len(text), offset + len(raw), style)
    room = style.longest - len(mark)
    back = room // _HEAD
    front = text[: room - back]
    at = offset + (len(front.encode()) if is_raw else 0)
    mark = _missing(len(text) - room, at, style).ljust(len(mark), ".")
    return front + mark + text[len(text) - back :]


def _missing(count: int, byte: int, style: _Style, unit: str = "characters") -> str:
    return f"...[{count:,} {unit} left out: {style.read_call(byte)}]..."


def _join_entries(entries: Sequence[_Entry]) -> str:
    return "".join(entry.text + entry.close for entry in entries)


def _range(entries: Sequence[_Entry]) -> tuple[tuple[int, int], ...]:
    return ((entries[0].first, entries[-1].last),) if entries else ()


# Functions that omit the middle of a long output.


def _render_window(capture: Capture, max_bytes: int, lines: _Lines) -> Rendered:
    """Render captured output whose middle was not kept."""
    whole = lines._replace(data=capture.head[: capture.head.rfind(b"\n") + 1])
    before, after = _take_fitting(_entries(whole), max_bytes // _HEAD)
    tail, line_end = capture.tail, capture.tail.find(b"\n")
    # The captured tail of an output usually starts inside a line: if this line redraws itself, as a
    # progress bar does, its last state is shown; otherwise this partial line is skipped.
    state = (tail[:line_end] if line_end >= 0 else tail).rstrip(b"\r")
    redrawn = state.rfind(b"\r") + 1
    skipped = redrawn or line_end + 1
    behind = lines.start + capture.size - len(tail) + skipped
    rest = lines._replace(data=tail[skipped:], start=behind)
    here = capture.head.count(b"\n") + tail.count(b"\n")
    if here == capture.newlines and not redrawn and after is None:
        rendered = _around_one_line(before, lines, capture, max_bytes)
        if rendered is not None:
            return rendered
    return _cut_middle(before, after, rest, capture, max_bytes, lines.first)


def _around_one_line(
    before: list[_Entry], lines: _Lines, capture: Capture, max_bytes: int
) -> Rendered | None:
    """Render captured output that lacks only the middle of one line, and shorten this line like any
    other long line. Return None if the rendered output would be longer than `max_bytes`
    bytes."""
    front = capture.head[capture.head.rfind(b"\n") + 1 :]
    back, newline, after = capture.tail.partition(b"\n")
    number = before[-1].last + 1 if before else lines.first
    start = lines.start + len(capture.head) - len(front)
    end = start + len(front) + capture.omitted + len(back) + len(newline)
    rest, over = _take_fitting(_entries(_Lines(after, number + 1, end, lines.style)), max_bytes)
    if over is not None:
        return None
    others = sum(entry.room for entry in (*before, *rest)) + len(newline)
    longest = max_bytes - others
    if longest < _LEAST_FOR_ENDS:
        return None
    text = as_displayed(decode(back)) if b"\r" in back else ""
    # The last state of a line that redraws itself is complete; other lines lack their middle.
    if not text or len(text) > longest:
        size = len(front) + capture.omitted + len(back)
        text = _join_ends(front, back, size, start, lines.style._replace(longest=longest))
    whole = _Entry(number, number, start, end, front, text, newline.decode(), True)
    found, over = _take_fitting(chain(before, (whole,), rest), max_bytes)
    if over is not None:
        return None
    return Rendered(head=_join_entries(found), shown=_range(found), shortened=True)


def _join_ends(front: bytes, back: bytes, size: int, start: int, style: _Style) -> str:
    """Join the two ends of a long line with a note on the missing middle. `size` is the length of
    the whole line in bytes, and `start` is the byte offset of the line in the output. The text has
    at most `style.longest` bytes."""
    mark = _missing(size, start + size, style, "bytes")
    room = style.longest - len(mark)
    if any(control in front + back for control in _CONTROLS):
        # Only as much of the line is displayed as may be shown; the position of the missing part is
        # not known then.
        most, is_raw = _MAX_ESCAPES * room, False
        front = as_displayed(decode(front[:most])).encode()
        back = as_displayed(decode(back[-most:])).encode()
    else:
        is_raw = True
    front, back = fit_start(front, room - room // _HEAD), fit_end(back, room // _HEAD)
    at = start + len(front) if is_raw else start
    missing = _missing(size - len(front) - len(back), at, style, "bytes")
    return decode(front) + missing.ljust(len(mark), ".") + decode(back)


def _cut_middle(
    before: list[_Entry],
    next_one: _Entry | None,
    rest: _Lines,
    capture: Capture,
    max_bytes: int,
    first: int,
) -> Rendered:
    """Render the head and the tail of an output: the lines in `before`, and as many of the last
    lines of `rest` as fit. If the whole lines do not fill `max_bytes`, the beginning of the first
    omitted line and the end of the last omitted line are shown too."""
    room = max_bytes // _HEAD - sum(entry.room for entry in before)
    if next_one is not None and (lines := _first_lines(next_one, room)):
        more, next_one = _take_fitting(lines, room)
        before = [*before, *more]
        room -= sum(entry.room for entry in more)
    opening = _front(next_one, room) if next_one is not None else _NOTHING
    room = max_bytes - sum(entry.room for entry in before) - len(opening.text.encode())
    last = _last_entries(rest, room, first + capture.newlines)
    after, middle = _take_fitting(reversed(last), room)
    room -= sum(entry.room for entry in after)
    if middle is not None and (lines := _last_lines(middle, room)):
        more, middle = _take_fitting(lines, room)
        after += more
        room -= sum(entry.room for entry in more)
    after.reverse()
    closing = _back(middle, room) if middle is not None else _NOTHING
    spare = 0 if middle is None else room - len(closing.text.encode())
    left_first = before[-1].last + 1 if before else first
    left_last = after[0].first - 1 if after else first + capture.lines - 1
    shown = sum(each.end - each.start for each in (*before, *after)) + opening.raw + closing.raw
    left = Omitted(
        first=left_first,
        last=left_last,
        byte=(before[-1].end if before else _start_of(capture, rest)) + opening.raw,
        size=max(0, capture.size - shown),
    )
    return Rendered(
        head=_join_entries(before) + opening.text,
        tail=closing.text + _join_entries(after),
        # If no line is missing between the head and the tail of the output, the omitted bytes are
        # only earlier states of a line that redraws itself, as a progress bar does.
        omitted=left if left_last >= left_first else None,
        shown=(*_range(before), *_range(after)),
        shortened=any(entry.short for entry in (*before, *after)),
        spare=spare if left_last >= left_first else 0,
    )


def _first_lines(entry: _Entry, room: int) -> list[_Entry]:
    """Return the first lines that an entry represents, more than `room` bytes can hold. Return an
    empty list for lines of different sizes, which look equal without their colours."""
    size, count = len(entry.raw) + 1, entry.last - entry.first + 1
    if entry.end - entry.start != count * size - (not entry.close):
        return []
    text = entry.text.partition("\n")[0]  # without the note on the repetitions
    return [
        entry._replace(
            first=entry.first + number,
            last=entry.first + number,
            start=entry.start + number * size,
            end=min(entry.start + (number + 1) * size, entry.end),
            text=text,
            close=entry.close if number == count - 1 else "\n",
        )
        for number in range(min(count, max(0, room) // size + 1))
    ]


def _last_lines(entry: _Entry, room: int) -> list[_Entry]:
    """Return the last lines that an entry represents, the last one first, more than `room` bytes
    can hold. Return an empty list for lines of different sizes, as `_first_lines` does."""
    size, count = len(entry.raw) + 1, entry.last - entry.first + 1
    behind = max(0, count - max(0, room) // size - 1)  # number of lines before the returned lines
    rest = entry._replace(first=entry.first + behind, start=entry.start + behind * size)
    return [*reversed(_first_lines(rest, entry.end))]


def _start_of(capture: Capture, rest: _Lines) -> int:
    """Return the byte offset at which an output begins, computed from the end of its last lines
    (`rest`) and its size."""
    return rest.start + len(rest.data) - capture.size


def _last_entries(rest: _Lines, max_bytes: int, last: int) -> list[_Entry]:
    """Render the last lines of `rest`: enough lines to fill `max_bytes` bytes and one more line, or
    all lines if `rest` is shorter. `last` is the number of the last line of the output; after a
    final newline, the empty rest counts as the last line."""
    data, size = rest.data, 2 * max_bytes + MAX_LINE
    while True:
        at = data.rfind(b"\n", 0, max(0, len(data) - size)) + 1
        part = data[at:]
        first = last - part.count(b"\n")
        rendered = list(_entries(rest._replace(data=part, first=first, start=rest.start + at)))
        if not at or sum(entry.room for entry in rendered[1:]) >= max_bytes:
            return rendered
        size *= 4


class _Fragment(NamedTuple):
    """Part of a rendered line that was cut, with a newline at its end."""

    text: str
    raw: int  # number of output bytes that this part of a line shows; 0 if unknown


_NOTHING: Final = _Fragment("", 0)


def _front(entry: _Entry, room: int) -> _Fragment:
    return _fragment(entry, room, lambda raw, budget: (raw[:budget], "", _MARK))


def _back(entry: _Entry, room: int) -> _Fragment:
    shown = _fragment(
        entry, room, lambda raw, budget: (raw[max(0, len(raw) - budget) :], _MARK, "")
    )
    # The newline of the line is shown too.
    return shown._replace(raw=shown.raw + len(entry.close)) if shown.raw else shown


def _fragment(
    entry: _Entry, room: int, split: Callable[[bytes, int], tuple[bytes, str, str]]
) -> _Fragment:
    """Return a part of a rendered line, cut to at most `room` bytes without splitting a character.
    Return an empty fragment if `room` is too small to show at least `_WORTHWHILE` bytes of the
    line."""
    budget = room - 1 - len(_MARK)
    if budget < _WORTHWHILE:
        return _NOTHING
    # Notes on repetitions or on the line's missing middle are left out.
    line = _display_line(entry.raw).encode()
    part, before, behind = split(line, budget)
    text = part.decode("utf-8", "ignore")
    is_raw = len(line) + len(entry.close) == entry.end - entry.start
    return _Fragment(f"{before}{text}{behind}\n", len(text.encode()) if is_raw else 0)
