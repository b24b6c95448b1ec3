"""The output in a reply of the `nacre` contract: rendered, with a notice about what is left out.

    RunStatus -> text.render -> text.failures (only for a cut output) -> ShownOutput -> text

The notice about the omitted lines is a complete call of the tool `job` that shows them. Below the
notice, the reply lists the omitted lines that look like failures; these lines are part of the byte
limit of the reply.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from nacre.contracts.nacre.reply_context import OutputReader, read_nothing
from nacre.model.requests import Excerpt, RunStatus
from nacre.text.clean import fit_start
from nacre.text.render import Omitted, Rendered, count_fitting_lines, render

if TYPE_CHECKING:
    from nacre.text.failures import FailureLine

_MAX_FAILURES: Final = 10  # maximum number of omitted lines that a reply lists
_FAILURES_SHARE: Final = 4  # divisor: the listed lines get at most a quarter of the byte limit
_MAX_FAILURE: Final = 200  # maximum bytes of a listed line
_MAX_REST: Final = 1024 * 1024  # maximum bytes that are searched of a line without an end

# A line of output that has the form of a line about a run's state: `(no output)`, words in
# brackets, or the beginning of a hint or a note that continues in the next line of the output.
# Lines about repeated lines and binary data do not count, because rendering adds them itself.
_LIKE_STATUS: Final = re.compile(
    r"^(?:\(no output\)|\[(?!previous line repeated |binary data, |[\d,]+ bytes of binary data\])"
    r"(?:(?:[a-z/]|\d[\d,]* [a-z]).*\]|(?:hint|note): .*))[ \t]*$",
    re.MULTILINE,
)


class ShownOutput(Struct, frozen=True, kw_only=True):
    text: str
    shown: tuple[tuple[int, int], ...] = ()  # ranges of output lines, each as (first, last)
    cut: bool = False
    # Whether a reader could mistake a line of the output for a line that nacre adds to a reply.
    looks_like_status: bool = False


NOTHING: Final = ShownOutput(text="")


def show_output(
    job: RunStatus,
    max_bytes: int,
    read_output: OutputReader = read_nothing,
    *,
    page_bytes: int,
    fold: bool = True,
) -> ShownOutput:
    """Render the output of a run's status in at most `max_bytes` bytes, plus the notice. The reply
    to a `job read` call without `max_output` shows `page_bytes` bytes. `fold` allows folding
    identical adjacent lines of an output that does not fit."""
    assert isinstance(job.output, Excerpt)
    part = _render(job.run, job.output, max_bytes, fold=fold)
    if part.omitted is None:
        return from_rendered(part)
    failures = _FailureFinder(job, read_output)
    failures.search(part.omitted)
    searched, room = part.omitted, max_bytes
    # The listed lines take their room from the head and the tail, so that more is omitted, which
    # may have further failures.
    while (
        _size(listed := _list_failures(failures, max_bytes // _FAILURES_SHARE)) > max_bytes - room
    ):
        room = max_bytes - _size(listed)
        part = _render(job.run, job.output, room, fold=fold)
        if part.omitted is None:
            return from_rendered(part)
        failures.search_rest(part.omitted, searched)
        searched = part.omitted
    first, *more = _notices(job, searched, max_bytes, page_bytes, failures)
    spare = part.spare + max_bytes - room - _size(listed)
    notices = [first + " " * spare, *listed, *more]
    return ShownOutput(
        text=part.head + "\n".join([*notices, part.tail]),
        shown=part.shown,
        cut=True,
        looks_like_status=_looks_like_status(part),
    )


def from_rendered(part: Rendered) -> ShownOutput:
    """Return an output that is shown without a notice."""
    return ShownOutput(
        text=part.head + part.tail,
        shown=part.shown,
        cut=part.cut,
        looks_like_status=_looks_like_status(part),
    )


def _looks_like_status(part: Rendered) -> bool:
    if part.binary:
        return False
    last = (part.tail or part.head).rstrip().rpartition("\n")[2]
    if last.startswith("[") and not (part.cut and last.startswith("[previous line repeated")):
        return True
    return any(_LIKE_STATUS.search(each) is not None for each in (part.head, part.tail))


def _render(run: str, output: Excerpt, max_bytes: int, *, fold: bool) -> Rendered:
    return render(
        output.capture,
        max_bytes,
        first=output.line,
        start=output.byte,
        fold=fold,
        read_call=lambda byte: f"job {read_call(run, since=byte)}",
    )


def read_call(run: str, **arguments: int | str) -> str:
    """Return the arguments of the `job read` call as JSON text."""
    given: dict[str, int | str] = {"action": "read", "run": run}
    given |= {name.rstrip("_"): value for name, value in arguments.items()}
    parts = (f'"{name}": {msgspec.json.encode(value).decode()}' for name, value in given.items())
    return f"{{{', '.join(parts)}}}"


def _notices(
    job: RunStatus, left: Omitted, max_bytes: int, page_bytes: int, failures: "_FailureFinder"
) -> Iterator[str]:
    """Generate the notices about the omitted part. The first has the part's lines, its size, and a
    call that shows the part or, if it is too long for one reply, searches it for failures. If it
    has no failures, the call shows as many of its lines as fit into one reply."""
    assert isinstance(job.output, Excerpt)
    count = left.last - left.first + 1
    lines = f"{count:,} lines, " if count > 1 else ""
    size = f"{left.size:,} byte{'' if left.size == 1 else 's'}"
    has_none = not failures.found and not failures.unsearched
    page = _page_end(left, job.output, max(max_bytes, page_bytes))
    if count == 1 or (has_none and page < left.first):
        call = read_call(job.run, since=left.byte)
    elif page == left.last or has_none:
        more = {"max_output": max_bytes} if max_bytes > page_bytes else {}
        call = read_call(job.run, from_=left.first, to=page, **more)
    else:
        call = read_call(job.run, from_=left.first, to=left.last, grep=failures.pattern())
    yield f"[{lines}{size} left out: job {call}]"
    if has_none and count > 1 and page < left.last:
        yield (
            '[none of them looks like a failure; "grep" searches '
            f"lines {left.first} to {left.last}]"
        )
    for first, last in failures.unsearched:
        yield f"[lines {first:,} to {last:,} were not searched for failures]"


def _page_end(left: Omitted, output: Excerpt, room: int) -> int:
    """Return the number of the last omitted line up to which the omitted lines fit into `room`
    bytes; the number before that of the first omitted line if not even this line fits."""
    capture = output.capture
    data = capture.head if capture.omitted else capture.head + capture.tail
    begin = data.rfind(b"\n", 0, left.byte - output.byte) + 1
    end = begin + room + 1
    lines = data[begin:end] if end >= len(data) else data[begin : data.rfind(b"\n", 0, end) + 1]
    return min(left.last, left.first + count_fitting_lines(lines, room) - 1)


def _list_failures(failures: "_FailureFinder", max_bytes: int) -> list[str]:
    """Return one line in brackets for each of the best failures, within `max_bytes` bytes; the
    failures with the lowest score are dropped first. A last line counts those that are not
    listed."""
    best = failures.best()
    texts = {each: _failure_text(each) for each in best}
    for each in sorted(best, key=lambda each: (each.score, -each.line)):
        if _size(_with_rest(texts, failures)) <= max_bytes:
            break
        if len(texts) == 1:
            # The best line is worth more than the number of the others.
            return [*texts.values()] if _size(texts.values()) <= max_bytes else []
        del texts[each]
    return _with_rest(texts, failures)


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _with_rest(texts: "dict[FailureLine, str]", failures: "_FailureFinder") -> list[str]:
    rest = failures.found - len(texts)
    look = "lines look like failures" if rest > 1 else "line looks like a failure"
    more = [f"[{rest:,} more {look}]"] if rest else []
    return [*texts.values(), *more]


def _failure_text(failure: "FailureLine") -> str:
    data = failure.text.strip().encode()
    short = fit_start(data, _MAX_FAILURE).decode()
    return f"[line {failure.line}: {short}{'…' if len(data) > _MAX_FAILURE else ''}]"


class _FailureFinder:
    """Search for failures in the omitted part of an output, within a time limit. A line that is
    omitted only in part is searched completely."""

    def __init__(self, job: RunStatus, read_output: OutputReader) -> None:
        from nacre.text.failures import FailureSearch  # lazy import: most outputs are not cut

        assert isinstance(job.output, Excerpt)
        self._run, self._read_output = job.run, read_output
        self._capture, self._offset = job.output.capture, job.output.byte
        self._search = FailureSearch(_MAX_FAILURES)
        # Ranges of lines that were not searched, each as (first, last).
        self.unsearched: list[tuple[int, int]] = []

    @property
    def found(self) -> int:
        """Return the number of lines that look like failures."""
        return self._search.found

    def best(self) -> "list[FailureLine]":
        """Return the lines that look most like failures, in the order of the output."""
        return self._search.best()

    def pattern(self) -> str:
        """Return a regular expression that finds lines like those that were found."""
        from nacre.text.failures import build_pattern

        return build_pattern(self.best())

    def search(self, left: Omitted) -> None:
        """Search the omitted part `left` of the output. The part in memory comes first, because the
        end of an output matters most. The rest is read from the store."""
        capture = self._capture
        begin = capture.head.rfind(b"\n", 0, left.byte - self._offset) + 1
        end = left.byte + left.size - self._offset
        if not capture.omitted:
            data = capture.head + capture.tail
            self._add(left.first, data[begin : _line_end(data, end)])
            return
        tail_start = capture.size - len(capture.tail)
        skipped = capture.tail.find(b"\n") + 1  # the captured tail begins inside a line
        tail = capture.tail[skipped : _line_end(capture.tail, end - tail_start)]
        first = left.last + 1 - _count_lines(tail)
        self._add(first, tail)
        searched = left.first
        stored_end = self._offset + (tail_start + skipped if tail else end)
        sections = self._read_output(self._run, self._offset + begin, stored_end)
        for number, data in _number_sections(left.first, sections):
            stop = self._search.add(number, data)
            searched = number + data.count(b"\n") if stop is None else stop
            if self._search.is_over:
                break
        if searched < first:
            self.unsearched.insert(0, (searched, first - 1))

    def search_rest(self, left: Omitted, searched: Omitted) -> None:
        """Search the lines of the omitted part `left` that are before and after the part that was
        searched. All these lines are in memory."""
        head, size = self._capture.head, self._capture.size
        tail, tail_start = self._capture.tail, size - len(self._capture.tail)
        if not self._capture.omitted:
            head = tail = head + tail
            tail_start = 0
        begin = head.rfind(b"\n", 0, left.byte - self._offset) + 1
        end = head.rfind(b"\n", 0, searched.byte - self._offset) + 1
        self._add(left.first, head[begin:end])
        begin = _line_end(tail, searched.byte + searched.size - self._offset - tail_start)
        end = _line_end(tail, left.byte + left.size - self._offset - tail_start)
        self._add(searched.last + 1, tail[begin:end])

    def _add(self, first: int, data: bytes) -> None:
        stop = self._search.add(first, data)
        if stop is not None:
            self.unsearched.append((stop, first + _count_lines(data) - 1))


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") + (data[-1:] not in (b"\n", b""))


def _line_end(data: bytes, at: int) -> int:
    """Return the end of the line that has the byte before offset `at`."""
    if at <= 0:
        return 0
    end = data.find(b"\n", at - 1)
    return end + 1 if end >= 0 else len(data)


def _number_sections(first: int, blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Divide blocks of output into sections of complete lines; yield each section with the number
    of its first line. The output begins with line `first`."""
    number, rest = first, b""
    for block in blocks:
        data = rest + block
        cut = data.rfind(b"\n") + 1
        if cut:
            yield number, data[:cut]
            number += data.count(b"\n", 0, cut)
        rest = data[cut:][:_MAX_REST]
    if rest:
        yield number, rest + b"\n"
