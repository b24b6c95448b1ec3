"""The output in a reply of the `nacre` contract: rendered, with a notice about what is left out.

    RunStatus -> text.render -> text.failures (only for a cut output) -> ShownOutput -> text

The notice about the omitted lines is a complete call of the tool `job` that shows them. Below the
notice, the reply lists the omitted lines that look like failures; these lines are part of the byte
limit of the reply.
"""

import re
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
# Pattern of the search that a notice offers for a long omitted part.
_GREP: Final = "(?i)error|fail|fatal|panic|exception|traceback|not ok|not found|denied"
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
    found, unsearched = _search_omitted(job, part.omitted, read_output)
    failures = _list_failures(found, max_bytes // _FAILURES_SHARE)
    if failures:
        room = max_bytes - sum(len(each.encode()) + 1 for each in failures)
        part = _render(job.run, job.output, room, fold=fold)
    if part.omitted is None:
        return from_rendered(part)
    notices = [_notice(job.run, part.omitted, max_bytes) + " " * part.spare, *failures]
    notices += [
        f"[lines {first:,} to {last:,} were not searched for failures]"
        for first, last in unsearched
    ]
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


def _search_omitted(
    job: RunStatus, left: Omitted, read_output: OutputReader
) -> "tuple[list[FailureLine], list[tuple[int, int]]]":
    """Search the omitted part of an output for failures, within a time limit. Return the lines that
    look most like failures, and the ranges of lines that were not searched, each as (first, last).

    The part in memory comes first, because the end of an output matters most. The rest is read from
    the store."""
    from nacre.text.failures import FailureSearch  # lazy import: most outputs are not cut

    assert isinstance(job.output, Excerpt)
    search, unsearched = FailureSearch(_MAX_FAILURES), []
    capture, offset = job.output.capture, job.output.byte
    # The first omitted line may be shown in part; it is searched as a whole.
    begin = capture.head.rfind(b"\n", 0, left.byte - offset) + 1
    end = left.byte + left.size - offset
    if not capture.omitted:
        stop = search.add(left.first, (capture.head + capture.tail)[begin:end])
        return search.best(), [] if stop is None else [(stop, left.last)]
    tail = _tail_of_omitted(capture, end)
    first = left.last + 1 - tail.count(b"\n")
    stop = search.add(first, tail)
    if stop is not None:
        unsearched.append((stop, left.last))
    searched = left.first
    for number, data in _stored_sections(job.run, left, offset + begin, read_output):
        stop = search.add(number, data)
        searched = number + data.count(b"\n") if stop is None else stop
        if search.is_over:
            break
    if searched < first:
        unsearched.insert(0, (searched, first - 1))
    return search.best(), unsearched


def _stored_sections(
    run: str, left: Omitted, start: int, read_output: OutputReader
) -> Iterator[tuple[int, bytes]]:
    """Yield the omitted part of a stored output in sections of complete lines, each with the number
    of its first line. `start` is the byte where the first omitted line begins."""
    number, rest = left.first, b""
    for block in read_output(run, start, left.byte + left.size):
        data = rest + block
        cut = data.rfind(b"\n") + 1
        if cut:
            yield number, data[:cut]
            number += data.count(b"\n", 0, cut)
        rest = data[cut:][:_MAX_REST]
    if rest:
        yield number, rest + b"\n"


def _tail_of_omitted(capture: Capture, end: int) -> bytes:
    """Return the complete lines of the captured tail that the reply omits."""
    part = capture.tail[: max(0, end - (capture.size - len(capture.tail)))]
    return part[part.find(b"\n") + 1 :]
