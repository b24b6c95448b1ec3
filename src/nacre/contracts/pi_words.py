"""What pi says: the end of the output with exact words about the rest, notices, how it ended.

Lines are counted from 1; a line that is cut counts as shown. With `head`, the beginning of the
output is shown instead of its end.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from nacre.contracts.words import artifact
from nacre.findings import AnyFinding, NeedsTerminal, Suggested, Unsigned
from nacre.outcome import Cancelled, Exited, Killed, Lost, NotStarted, Outcome, TimedOut
from nacre.plan import KIB
from nacre.signals import signal_name
from nacre.text import decode, settled, without_cut_end, without_cut_start

LIMIT: Final = 50 * KIB


class Said(Struct, frozen=True, kw_only=True):
    """What the reply wants to know of the call."""

    script: bytes
    timeout: float
    requested: float | None
    head: int | None
    tail: int | None
    notices: tuple[str, ...]


class Shown(Struct, frozen=True, kw_only=True):
    text: str
    truncation: dict[str, Any] | None = None
    notice: str | None = None


def shown(outcome: Outcome, head: int | None, tail: int | None) -> Shown:
    capture = outcome.output
    everything = capture.head + capture.tail
    if capture.size <= LIMIT:
        data = _cut(everything, head, tail)[1]
        return Shown(text=settled(decode(data)))
    if head is None:
        window = without_cut_start(everything[-LIMIT:])
        first = capture.lines - _lines(window) + 1
    else:
        window = without_cut_end(everything[:LIMIT])
        first = 1
    passed, data = _cut(window, head, tail)
    first += passed
    return _said(outcome, data, first, "tail" if head is None else "head")


def _cut(data: bytes, head: int | None, tail: int | None) -> tuple[int, bytes]:
    """The first lines, and of those the last; also how many were passed over at the front."""
    if head is None and tail is None:
        return 0, data
    lines = _split(data)
    if head is not None:
        lines = lines[:head]
    passed = 0 if tail is None else max(0, len(lines) - tail)
    return passed, b"".join(lines[passed:])


def _split(data: bytes) -> list[bytes]:
    """At newlines only."""
    *whole, last = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n")) if data else 0


def _said(outcome: Outcome, data: bytes, first: int, direction: str) -> Shown:
    capture = outcome.output
    count = _lines(data)
    last = first + count - 1
    number, where = artifact(outcome.run, capture)
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
    return Shown(text=settled(decode(data)), truncation=truncation, notice=notice)


def notices(findings: Sequence[AnyFinding]) -> Iterator[str]:
    for finding in findings:
        match finding:
            case Suggested(message=message):
                yield f"Hint: {message}"
            case NeedsTerminal(words=words, why=why, instead=instead):
                yield f"{words}: {why}; {instead}"
            case Unsigned(why=why):
                yield f"A commit got no trailer: {why}"


def ending(outcome: Outcome) -> str | None:
    """The line that says that this is no success, if it is none."""
    match outcome.ending:
        case Exited(0):
            return None
        case Exited() | Killed():
            return f"Command exited with code {outcome.exit_code}"
        case TimedOut(after=after):
            return f"Command timed out after {after:g} second{'' if after == 1 else 's'}"
        case Cancelled():
            return "Command aborted"
        case Lost() | NotStarted():
            return "Command failed: missing exit status"


def plain(number: float) -> float | int:
    return int(number) if abs(number) < 2**53 and number == int(number) else number


def details(
    outcome: Outcome, said: Said, part: Shown, findings: Sequence[AnyFinding]
) -> dict[str, Any]:
    made: dict[str, Any] = {"timeoutSeconds": plain(said.timeout)}
    if said.requested is not None and said.requested != said.timeout:
        made["requestedTimeoutSeconds"] = plain(said.requested)
    made["wallTimeMs"] = round(outcome.seconds * 1000)
    match outcome.ending:
        case Exited(code) if code:
            made["exitCode"] = code
        case Killed(number):
            made |= {"exitCode": outcome.exit_code, "signal": signal_name(number)}
        case TimedOut():
            made["timedOut"] = True
        case Cancelled():
            made["aborted"] = True
    for finding in findings:
        if isinstance(finding, Suggested):
            made["suggestion"] = {"tool": finding.tool, "arguments": finding.arguments}
    if part.truncation is not None:
        made["meta"] = {"truncation": part.truncation}
    return made
