"""Finding the lines of an output that look like failures, by a scored set of patterns.

    output -> lines with a word such as `fail` -> score of each kind of line -> best lines

When a reply leaves out a part of an output, the reply lists the lines of that part that look most
like failures. The patterns cover the common test runners, compilers and languages. A search for
plain words selects the candidates, because this search skips megabytes of other lines in a few
milliseconds.
"""

import re
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from nacre.text.clean import as_displayed, decode

_MAX_CPU: Final = 0.5  # maximum CPU seconds of one search for failures
_MAX_SECONDS: Final = 1.0  # maximum seconds of one search, on a machine with other work
_MAX_LINE: Final = 600  # number of characters at the start of a line that the patterns see
# Words in lower case; a failing line has at least one of them.
_WORDS: Final = (
    *(b"fail", b"error", b"not ok", b"traceback", b"panic", b"assert", b"exception", b"fatal"),
    *(b"\ne   ", b"segmentation fault", b"undefined reference", b"core dumped", b"timed out"),
    *(b"err!", b"*** ", b"not found", b"no such file", b"denied", b"refused", b"unable to"),
    *(b"could not ", b"\ne: ", b"\nkilled", b"\naborted", b"undefined symbol"),
    *("✗".encode(), "✘".encode(), "✕".encode(), "✖".encode(), "●".encode()),
)
_USUAL_WORDS: Final = ("error", "fail")  # words of a search for failures
# Lines that mention failures but report success.
_PASSED: Final = re.compile(
    r"^\s*(?:ok|PASS|\+|✓|✔|√)\b|^\s*[✓✔√]|\bPASSED\b|\.\.\. ?ok$|^\[ *(?:OK|RUN|PASSED) *\]"
)
# Words that say that there are no failures; the rest of their line may still report one.
_NONE: Final = re.compile(
    r"(?i)\b(?:0|no|zero|without)\s+(?:[a-z]+\s+)?(?:errors?|fail(?:ed|ures?|ing)?|warnings?)\b"
    r"|\b(?:errors?|fail(?:ed|ures?)?)(?: count)?(?:\s*[:=]\s*|\s+)(?:0|none)\b"
)
# Patterns with the score of a line that matches, the highest first; the first match counts.
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
        (8, r"^\S*make(?:\[\d+\])?: \*\*\*|^E: \S|undefined symbol|symbol\(s\) not found"),
        (7, r"^ERROR\b|\b(?:ERROR|FATAL|CRITICAL|SEVERE|PANIC)\b|^(?:npm )?ERR!|^fatal:"),
        (7, r"\bcommand not found\b|^(?:Killed|Aborted)\b(?! by\b)"),
        (6, r"\b(?:Error|Exception|[A-Z]\w+(?:Error|Exception)):"),
        (5, r"\bNo such file or directory\b|\b[Pp]ermission denied\b|\b[Cc]onnection refused\b"),
        (4, r"(?i)(?<![\w./-])(?:failed|failures?|failing|exception|timed out)(?![\w/-]|\.\w)"),
        (4, r"\b[Cc]ould not (?:connect|find|open|resolve|read|write|load|locate|start|create)\b"),
        (3, r"(?i)\bunable to \w|\baccess denied\b"),
        (2, r"(?i)(?<![\w./-])(?:errors?|fail)(?![\w/-]|\.\w)"),
    )
)
# A number other than zero: `0 failed` and `3 failed` are lines of different kinds.
_NUMBER: Final = re.compile(rb"(?<!\d)\d*[1-9]\d*")


class FailureLine(NamedTuple):
    line: int
    text: str
    score: int


class _Kind(NamedTuple):
    """Kind of line: lines that differ only in numbers. Only the kinds of failures have lines."""

    score: int
    lines: list[FailureLine]


class FailureSearch:
    """Search for the lines that look most like failures, in parts of an output. All parts share one
    limit of time."""

    def __init__(self, count: int) -> None:
        """`count` is the maximum number of lines that the search finds."""
        self._count = count
        self._cpu_deadline = time.thread_time() + _MAX_CPU
        self._deadline = time.monotonic() + _MAX_SECONDS
        self._kinds: dict[int, _Kind] = {}  # by the hash of a line in which all numbers are equal
        self._texts: set[int] = set()  # hashes of the lines in `_kinds`
        self.found = 0  # number of lines that look like failures, also of those that are equal

    @property
    def is_over(self) -> bool:
        return time.thread_time() > self._cpu_deadline or time.monotonic() > self._deadline

    def add(self, first: int, data: bytes) -> int | None:
        """Search a part of the output whose first line has the number `first`. Return the number of
        the line at which the search stopped because its time was over, else None."""
        at, number = 0, first
        for start in sorted(_line_starts(data)):
            number += data.count(b"\n", at, start)
            at = start
            if self.is_over:
                return number
            end = data.find(b"\n", start, start + 4 * _MAX_LINE)
            self._add_line(number, data[start : end if end >= 0 else start + 4 * _MAX_LINE])
        return None

    def _add_line(self, number: int, line: bytes) -> None:
        kind = hash(_NUMBER.sub(b"1", line))
        known = self._kinds.get(kind)
        if known is None:
            text = as_displayed(decode(line)).rstrip()
            known = self._kinds[kind] = _Kind(score_line(text), [])
        if not known.score:
            return
        self.found += 1
        if len(known.lines) < self._count and hash(line) not in self._texts:
            self._texts.add(hash(line))
            text = as_displayed(decode(line)).rstrip()
            known.lines.append(FailureLine(number, text, known.score))

    def best(self) -> list[FailureLine]:
        """Return the lines that look most like failures, in the order of the output. Further lines
        of one kind are selected last, so that a message that repeats does not hide all others."""
        kinds = [kind.lines for kind in self._kinds.values() if kind.lines]
        first = [lines[0] for lines in kinds]
        again = [line for lines in kinds for line in lines[1:]]
        ordered = [*sorted(first, key=_by_score), *sorted(again, key=_by_score)]
        return sorted(ordered[: self._count])


def _by_score(found: FailureLine) -> tuple[int, int]:
    return -found.score, found.line


def score_line(text: str) -> int:
    """Return how much a line looks like a failure; 0 for a line that does not."""
    text = text[:_MAX_LINE]
    if _PASSED.search(text):
        return 0
    text = _NONE.sub("", text)
    return next((score for score, pattern in _SCORES if pattern.search(text)), 0)


def build_pattern(lines: Iterable[FailureLine]) -> str:
    """Return a regular expression that finds the lines, and others like them."""
    found = dict.fromkeys(_USUAL_WORDS)
    for line in lines:
        lower = f"\n{line.text.lower()}"
        word = next((word for word in map(bytes.decode, _WORDS) if word in lower), "")
        if word:
            found[re.escape(word).replace("\\\n", "^").replace("\\ ", " ")] = None
    return f"(?i){'|'.join(found)}"


def _line_starts(data: bytes) -> set[int]:
    """Return the offsets of the lines that have a word of a failure."""
    lower, found = b"\n" + data.lower(), set()
    for word in _WORDS:
        at = lower.find(word)
        while at >= 0:
            # `lower` has one byte more than `data` at its start.
            found.add(lower.rfind(b"\n", 0, at + 1))
            end = lower.find(b"\n", at + 1)
            at = -1 if end < 0 else lower.find(word, end)
    return found
