"""The part of an output that pi shows: its end, with exact words about the rest.

Lines are counted from 1; a line that is cut counts as shown. With `head`, the beginning is
shown instead of the end.
"""

from typing import Any, Final

from msgspec import Struct

from nacre.contracts.words import artifact
from nacre.outcome import Outcome
from nacre.plan import KIB
from nacre.text import decode, settled, without_cut_end, without_cut_start

LIMIT: Final = 50 * KIB


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
    notice = (
        f"[Showing lines {first}-{last} of {capture.lines} ({LIMIT // KIB}KB limit). Full: {where}]"
    )
    return Shown(text=settled(decode(data)), truncation=truncation, notice=notice)
