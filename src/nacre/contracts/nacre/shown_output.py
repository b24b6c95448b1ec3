"""The output in a reply of the `nacre` contract: rendered, with a notice about what is left out.

    RunStatus -> text.render -> text.failures (only for a cut output) -> ShownOutput -> text

The notice about the omitted lines is a complete call of the tool `job` that shows them. Below the
notice, the reply lists the omitted lines that look like failures; these lines are part of the byte
limit of the reply.
"""

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from nacre.contracts.nacre.reply_context import OutputReader, read_nothing
from nacre.model.outcome import Capture
from nacre.model.requests import Excerpt, RunStatus
from nacre.text.clean import fit_start
from nacre.text.render import Omitted, Rendered, render

if TYPE_CHECKING:
    from nacre.text.failures import FailureLine

_MAX_FAILURES: Final = 10  # maximum number of omitted lines that a reply lists
_FAILURES_SHARE: Final = 4  # divisor: the listed lines get at most a quarter of the byte limit
_MAX_FAILURE: Final = 200  # maximum bytes of a listed line
_MAX_REST: Final = 1024 * 1024  # maximum bytes that are searched of a line without an end
_SCAN_SECONDS: Final = 0.5  # maximum CPU seconds for searching the part of an output on disk
# Pattern of the search that a notice offers for a long omitted part.
_GREP: Final = "(?i)error|fail|fatal|panic|traceback"
# Size of an omitted part up to which a notice offers to read the part instead of searching it.
_READABLE: Final = 20_000

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
    fold: bool = True,
) -> ShownOutput:
    """Render the output of a run's status in at most `max_bytes` bytes, plus the notice. `fold`
    allows folding identical adjacent lines of an output that does not fit."""
    assert isinstance(job.output, Excerpt)
    part = _render(job.run, job.output, max_bytes, fold=fold)
    if part.omitted is None:
        return from_rendered(part)
    from nacre.text.failures import find_failures  # lazy import: most outputs are not cut

    search = _OmittedSearch(job, part.omitted, read_output)
    found, stopped = find_failures(search.sections(), _MAX_FAILURES)
    failures = _list_failures(found, max_bytes // _FAILURES_SHARE)
    if failures:
        room = max_bytes - sum(len(each.encode()) + 1 for each in failures)
        part = _render(job.run, job.output, room, fold=fold)
    if part.omitted is None:
        return from_rendered(part)
    notices = [_notice(job.run, part.omitted, max_bytes) + " " * part.spare, *failures]
    unsearched = search.unsearched if stopped is None else (stopped, part.omitted.last)
    if unsearched is not None:
        first, last = unsearched
        notices.append(f"[lines {first:,} to {last:,} were not searched for failures]")
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


def _notice(run: str, left: Omitted, max_bytes: int) -> str:
    """Return the notice about the omitted part: its lines, its size, and the call that shows it.
    For a part that would be cut again, the call searches the part instead of reading it."""
    count = left.last - left.first + 1
    lines = f"{count:,} lines, " if count > 1 else ""
    size = f"{left.size:,} byte{'' if left.size == 1 else 's'}"
    if count == 1:
        call = read_call(run, since=left.byte)
    elif left.lines_size <= max(max_bytes, _READABLE):
        more = {} if left.lines_size <= _READABLE else {"max_output": max_bytes}
        call = read_call(run, from_=left.first, to=left.last, **more)
    else:
        call = read_call(run, from_=left.first, to=left.last, grep=_GREP)
    return f"[{lines}{size} left out: job {call}]"


def _list_failures(found: "list[FailureLine]", max_bytes: int) -> list[str]:
    """Return one line in brackets for each failure, within `max_bytes` bytes; the failures with the
    lowest score are dropped first."""
    texts = {each: _failure_text(each) for each in found}
    for each in sorted(found, key=lambda each: (each.score, -each.line)):
        if sum(len(text.encode()) + 1 for text in texts.values()) <= max_bytes:
            break
        del texts[each]
    return [*texts.values()]


def _failure_text(failure: "FailureLine") -> str:
    data = failure.text.strip().encode()
    short = fit_start(data, _MAX_FAILURE).decode()
    return f"[line {failure.line}: {short}{'…' if len(data) > _MAX_FAILURE else ''}]"


class _OmittedSearch:
    """Search for failures in the omitted part of an output. The part that is not in memory is read
    from the store, within a time limit."""

    def __init__(self, job: RunStatus, left: Omitted, read_output: OutputReader) -> None:
        assert isinstance(job.output, Excerpt)
        self._run = job.run
        self._output = job.output
        self._left = left
        self._read_output = read_output
        # First and last of the lines that were not searched, because the time was over.
        self.unsearched: tuple[int, int] | None = None

    def sections(self) -> Iterator[tuple[int, bytes]]:
        """Yield the omitted part in sections of complete lines, each with the number of its first
        line."""
        left, capture = self._left, self._output.capture
        begin = left.byte - self._output.byte
        if not capture.omitted:
            yield left.first, (capture.head + capture.tail)[begin : begin + left.size]
            return
        searched = left.first
        for first, data in self._stored_sections():
            yield first, data
            searched = first + data.count(b"\n")
        tail = _tail_of_omitted(capture, begin + left.size)
        first = left.last + 1 - tail.count(b"\n")
        if searched < first:
            self.unsearched = (searched, first - 1)
            yield first, tail

    def _stored_sections(self) -> Iterator[tuple[int, bytes]]:
        left, rest = self._left, b""
        deadline, number = time.thread_time() + _SCAN_SECONDS, left.first
        for block in self._read_output(self._run, left.byte, left.byte + left.size):
            data = rest + block
            cut = data.rfind(b"\n") + 1
            if cut:
                yield number, data[:cut]
                number += data.count(b"\n", 0, cut)
            rest = data[cut:][:_MAX_REST]
            if time.thread_time() > deadline:
                return
        if rest:
            yield number, rest + b"\n"


def _tail_of_omitted(capture: Capture, end: int) -> bytes:
    """Return the complete lines of the captured tail that the reply omits."""
    part = capture.tail[: max(0, end - (capture.size - len(capture.tail)))]
    return part[part.find(b"\n") + 1 :]
