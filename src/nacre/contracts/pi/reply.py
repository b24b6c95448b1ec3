"""Parts of the replies of the `pi` contract: shown output, notices, ending and details.

A reply shows the end of a long output, and a notice says exactly which lines are shown. If a call
has the argument `head`, its reply shows the beginning of the output instead of the end. Line
numbers in a notice start at 1, and a partly shown line counts as a shown line.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from nacre.contracts.phrases import artifact_reference, moved_note
from nacre.model.findings import (
    AnyFinding,
    NeedsTerminal,
    SessionMoved,
    ToolSuggested,
    TrailerSkipped,
)
from nacre.model.outcome import Cancelled, Exited, Killed, Lost, NotStarted, Outcome, TimedOut
from nacre.model.plan import KIB
from nacre.model.signals import signal_name
from nacre.text.clean import as_displayed, decode, displayed_size, fit_end, fit_start

LIMIT: Final = 50 * KIB


class ReplyContext(Struct, frozen=True, kw_only=True):
    """Facts about one call of the tool `bash` of the `pi` contract, needed only for the reply to
    that call."""

    script: bytes
    timeout: float
    requested: float | None
    head: int | None
    tail: int | None
    notices: tuple[str, ...]


class ShownOutput(Struct, frozen=True, kw_only=True):
    text: str
    truncation: dict[str, Any] | None = None
    notice: str | None = None


def cut_output(outcome: Outcome, head: int | None, tail: int | None) -> ShownOutput:
    capture = outcome.output
    everything = capture.head + capture.tail
    if capture.size <= LIMIT:
        data = _cut_lines(everything, head, tail)[1]
        text = as_displayed(decode(data))
        if len(text.encode()) <= LIMIT:
            return ShownOutput(text=text)
    if head is None:
        window = fit_end(everything[-LIMIT:], LIMIT, displayed_size)
        first = capture.lines - _count_lines(window) + 1
    else:
        window = fit_start(everything[:LIMIT], LIMIT, displayed_size)
        first = 1
    passed, data = _cut_lines(window, head, tail)
    first += passed
    return _truncation_details(outcome, data, first, "tail" if head is None else "head")


def _cut_lines(data: bytes, head: int | None, tail: int | None) -> tuple[int, bytes]:
    """Cut `data` to its first `head` lines, and then to the last `tail` of these lines; return how
    many lines were cut off at the front, and the remaining bytes."""
    if head is None and tail is None:
        return 0, data
    lines = _split_lines(data)
    if head is not None:
        lines = lines[:head]
    passed = 0 if tail is None else max(0, len(lines) - tail)
    return passed, b"".join(lines[passed:])


def _split_lines(data: bytes) -> list[bytes]:
    """Split bytes into lines at newline characters only, and keep each newline at the end of its
    line."""
    *whole, last = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n")) if data else 0


def _truncation_details(outcome: Outcome, data: bytes, first: int, direction: str) -> ShownOutput:
    capture = outcome.output
    count = _count_lines(data)
    last = first + count - 1
    number, where = artifact_reference(outcome)
    truncation = {
        "direction": direction,
        "truncatedBy": "bytes",
        "totalLines": capture.lines,
        "totalBytes": capture.size,
        "outputLines": count,
        "outputBytes": len(data),
        "shownRange": {"start": first, "end": last},
    }
    if number is not None:
        truncation["artifactId"] = number
    lines = f"lines {first}-{last}" if count else "no lines"
    notice = f"[Showing {lines} of {capture.lines} ({LIMIT // KIB}KB limit). Full: {where}]"
    return ShownOutput(text=as_displayed(decode(data)), truncation=truncation, notice=notice)


def finding_notices(findings: Sequence[AnyFinding]) -> Iterator[str]:
    for finding in findings:
        match finding:
            case ToolSuggested(message=message):
                yield f"Hint: {message}"
            case NeedsTerminal(words=words, why=why, instead=instead):
                yield f"{words}: {why}; {instead}"
            case TrailerSkipped(why=why):
                yield f"A commit got no trailer: {why}"
            case SessionMoved(before=before, now=now):
                yield f"[{moved_note(before, now)}]"


def ending_line(outcome: Outcome) -> str | None:
    """Return the line of the reply that reports a failed, stopped or lost command; None for exit
    code 0."""
    match outcome.ending:
        case Exited(0):
            return None
        case Exited() | Killed():
            return f"Command exited with code {outcome.exit_code}"
        case TimedOut(after=after):
            return f"Command timed out after {after:g} seconds"
        case Cancelled():
            return "Command aborted"
        case Lost() | NotStarted():
            return "Command failed: missing exit status"


def wall_time_ms(seconds: float) -> int:
    return round(seconds * 1000)


def wall_time_line(seconds: float) -> str:
    """Return the line of a reply that says how long the command ran. The line is computed from the
    rounded `wallTimeMs` of the reply's details, so that both always agree."""
    return f"Wall time: {wall_time_ms(seconds) / 1000:.2f} seconds"


def format_number(number: float) -> float | int:
    return int(number) if abs(number) < 2**53 and number == int(number) else number


def build_details(
    outcome: Outcome, reply_context: ReplyContext, part: ShownOutput, findings: Sequence[AnyFinding]
) -> dict[str, Any]:
    details: dict[str, Any] = {"timeoutSeconds": format_number(reply_context.timeout)}
    if reply_context.requested is not None and reply_context.requested != reply_context.timeout:
        details["requestedTimeoutSeconds"] = format_number(reply_context.requested)
    details["wallTimeMs"] = wall_time_ms(outcome.seconds)
    match outcome.ending:
        case Exited(code) if code:
            details["exitCode"] = code
        case Killed(number):
            details |= {"exitCode": outcome.exit_code, "signal": signal_name(number)}
        case TimedOut():
            details["timedOut"] = True
        case Cancelled():
            details["aborted"] = True
    for finding in findings:
        if isinstance(finding, ToolSuggested):
            details["suggestion"] = {"tool": finding.tool, "arguments": finding.arguments}
    if part.truncation is not None:
        details["meta"] = {"truncation": part.truncation}
    return details
