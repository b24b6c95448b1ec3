"""Finding the lines of an output that look like failures, by a scored set of patterns.

    output -> candidates (lines with a word such as `fail`) -> score of each line -> best lines

When a reply leaves out a part of an output, the reply lists the lines of that part that look most
like failures. The patterns cover the common test runners, compilers and languages. A search for
plain words selects the candidates, because this search skips megabytes of other lines in a few
milliseconds.
"""

import re
import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from nacre.text.clean import as_displayed, decode

# Maximum number of lines, for each word, whose score is computed in one section of the output: the
# first ones with the word.
_MAX_LINES: Final = 2000
_MAX_SECONDS: Final = 0.5  # maximum CPU seconds of one search for failures
_MAX_LINE: Final = 600  # number of characters at the start of a line that the patterns see
# Words in lower case; a failing line has at least one of them.
_WORDS: Final = (
    *(b"fail", b"error", b"not ok", b"traceback", b"panic", b"assert", b"exception", b"fatal"),
    *(b"\ne   ", b"segmentation fault", b"undefined reference", b"core dumped", b"timed out"),
    *(b"err!", b"*** "),
    *("✗".encode(), "✘".encode(), "✕".encode(), "✖".encode(), "●".encode()),
)
# Lines that mention failures but report success.
_PASSED: Final = re.compile(
    r"^\s*(?:ok|PASS|\+|✓|✔|√)\b|^\s*[✓✔√]|\bPASSED\b|\.\.\. ?ok$|^\[ *(?:OK|RUN|PASSED) *\]"
)
# Words that say that there are no failures; the rest of their line may still report one.
_NONE: Final = re.compile(
    r"(?i)\b(?:0|no|zero|without)\s+(?:[a-z]+\s+)?(?:errors?|fail(?:ed|ures?|ing)?|warnings?)\b"
    r"|\b(?:errors?|fail(?:ed|ures?)?)(?: count)?(?:\s*[:=]\s*|\s+)(?:0|none)\b"
)
# Patterns with the score of a line that matches; the highest score of all matching patterns counts.
_SCORES: Final = tuple(
    (score, re.compile(pattern))
    for score, pattern in (
        (9, r"^\s*not ok\b(?!.*# (?:TODO|SKIP))"),
        (9, r"^FAILED\b|^\s*FAIL\b|\bFAILED\s*(?:\[|$)|^\s*--- FAIL"),
        (9, r"^\s*[✗✘✕✖]|^\s*● "),
        (9, r"\.\.\. ?(?:FAIL(?:ED)?|ERROR)$"),
        (8, r"^E   \s*\S"),
        (8, r"\bAssert(?:ion)?(?:Error|Failed)|\bassertion\b.{0,200}\bfailed\b|\bassert failed"),
        (8, r"\bpanic:|\bpanicked at\b|[Ss]egmentation fault|core dumped"),
        (8, r"^Traceback \(most recent|^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b"),
        (8, r"\b(?:fatal )?error(?:\[\w+\]| [A-Z]+\d+)?:|undefined reference"),
        (7, r"^ERROR\b|\b(?:ERROR|FATAL|CRITICAL|SEVERE|PANIC)\b|^(?:npm )?ERR!|^fatal:"),
        (6, r"\b(?:Error|Exception|[A-Z]\w+(?:Error|Exception)):"),
        (8, r"^\S*make(?:\[\d+\])?: \*\*\*"),
        (4, r"(?i)(?<![\w./-])(?:failed|failures?|failing|exception|timed out)(?![\w/-]|\.\w)"),
        (2, r"(?i)(?<![\w./-])(?:errors?|fail)(?![\w/-]|\.\w)"),
    )
)
_DIGITS: Final = re.compile(r"\d+")


class FailureLine(NamedTuple):
    line: int
    text: str
    score: int


def find_failures(
    sections: Iterable[tuple[int, bytes]], count: int
) -> tuple[list[FailureLine], int | None]:
    """Return at most `count` lines that look most like failures, in the order of the output. Each
    section is a part of the output with the number of its first line. Also return the number of the
    line at which the search stopped because it took too long, else None."""
    scored: list[FailureLine] = []
    deadline, stopped = time.thread_time() + _MAX_SECONDS, None
    for number, text in _candidates(sections):
        if time.thread_time() > deadline:
            stopped = number
            break
        shown = as_displayed(text).rstrip()
        score = score_line(shown)
        if score:
            scored.append(FailureLine(number, shown, score))
    return sorted(_select(scored, count)), stopped


def score_line(text: str) -> int:
    """Return how much a line looks like a failure; 0 for a line that does not."""
    text = text[:_MAX_LINE]
    if _PASSED.search(text):
        return 0
    text = _NONE.sub("", text)
    return next((score for score, pattern in _SCORES if pattern.search(text)), 0)


def _select(scored: list[FailureLine], count: int) -> list[FailureLine]:
    """Select lines by their score. Lines that differ only in numbers are selected last, so that
    one message that repeats does not hide all others."""
    kinds: set[str] = set()
    first: list[FailureLine] = []
    again: list[FailureLine] = []
    for each in sorted(scored, key=lambda each: (-each.score, each.line)):
        kind = _DIGITS.sub("0", each.text)
        (again if kind in kinds else first).append(each)
        kinds.add(kind)
    return [*first, *again][:count]


def _candidates(sections: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that has a word of a failure."""
    for first, data in sections:
        at, number = 0, first
        for start in sorted(_line_starts(data)):
            number += data.count(b"\n", at, start)
            end = data.find(b"\n", start)
            yield number, decode(data[start : end if end >= 0 else len(data)][: 4 * _MAX_LINE])
            at = start


def _line_starts(data: bytes) -> set[int]:
    """Return the offsets of the lines that have a word of a failure."""
    lower, found = b"\n" + data.lower(), set()
    for word in _WORDS:
        at = lower.find(word)
        for _ in range(_MAX_LINES):
            if at < 0:
                break
            # `lower` has one byte more than `data` at its start.
            found.add(lower.rfind(b"\n", 0, at + 1))
            end = lower.find(b"\n", at + 1)
            at = -1 if end < 0 else lower.find(word, end)
    return found
