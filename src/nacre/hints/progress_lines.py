"""Removal of progress lines, such as those of `pip install`, from a command's output.

An output line is removed if it matches a progress pattern of a program in the script and contains
no word such as `error`. Each block of removed progress lines is replaced by one line with their
number. All lines that are not progress lines stay unchanged and in order.
"""

import re
from collections.abc import Iterable
from typing import Final

from nacre.bash.commands import Analysis, ParsedCommand

# minimum number of progress lines in a command's output; with fewer, the output stays unchanged
_WORTHWHILE: Final = 5

_TROUBLE: Final = re.compile(
    r"(?i)error|warn|fail|fatal|exception|denied|cannot|can't|could not|unable|not found"
    r"|panic|traceback|conflict|deprecat|abort|invalid|missing|refused|killed|timed? ?out"
)


def _progress(*patterns: str) -> re.Pattern[str]:
    return re.compile(r"\s*(?:" + "|".join(patterns) + ")")


_PIP: Final = _progress(
    r"(?:Collecting|Downloading|Using cached|Requirement already satisfied|Obtaining) ",
    r"Looking in indexes",
    r"(?:Installing|Getting|Preparing|Building|Checking|Created|Stored|Running)"
    r" (?:build|requirements|metadata|wheel|if build|in directory|command)",
    r"[━╸╺][━╸╺ ]*\s*[\d.]+",
)
_NODE: Final = _progress(
    r"npm (?:http|timing|sill|verb|info) ",
    r"Progress: ",
    r"\[\d+/\d+\] ",
    r"➤ YN0000: (?:┌|└|·)",
    r"➤ YN0013",
)
_APT: Final = _progress(
    r"(?:Get|Hit|Ign):\d+ ",
    r"Reading (?:package lists|state information)",
    r"Building dependency tree",
    r"\(Reading database",
    r"(?:Selecting previously|Preparing to unpack|Unpacking|Setting up|Processing triggers) ",
)
_PYTEST: Final = _progress(
    r"\S+\.py [.sx]+\s*(?:\[\s*\d+%\])?$",
    r"\S+::\S.* (?:PASSED|SKIPPED|XFAIL)(?:\s.*)?$",
)
_GIT: Final = _progress(
    r"(?:remote: )?(?:Enumerating|Counting|Compressing|Receiving|Resolving|Unpacking|Writing|Total"
    r"|Updating|Checking out|Filtering) (?:objects|deltas|files|content|\d+)",
)
_CMAKE: Final = _progress(r"\[\s*\d+%\] (?:Building|Linking|Built|Generating|Scanning)")

# Patterns of progress lines by the first words of a command, such as `git clone`; the longest key
# that matches the command is used.
_KNOWN: Final[dict[tuple[str, ...], re.Pattern[str]]] = {
    **{(name, "install"): _PIP for name in ("pip", "pip3")},
    **{(name, "-m", "pip"): _PIP for name in ("python", "python3")},
    **{(name,): _NODE for name in ("npm", "pnpm", "yarn")},
    **{(name,): _APT for name in ("apt", "apt-get")},
    **dict.fromkeys((("pytest",), ("python", "-m", "pytest")), _PYTEST),
    ("python3", "-m", "pytest"): _PYTEST,
    **{
        ("cargo", verb): _progress(
            r"(?:Compiling|Downloading|Downloaded|Checking|Fresh|Updating|Locking|Adding) "
        )
        for verb in ("build", "check", "clippy", "test", "install", "fetch", "add")
    },
    **{("git", verb): _GIT for verb in ("clone", "fetch", "pull", "push", "submodule")},
    **{(name,): _CMAKE for name in ("make", "cmake", "ninja")},
    ("go",): _progress(r"go: (?:downloading|extracting|finding) "),
    **{
        (name,): _progress(r"(?:\[INFO\] )?Download(?:ing|ed)(?: from|:| https?:)", r"Progress \(")
        for name in ("mvn", "gradle", "./gradlew", "./mvnw")
    },
    **{
        ("docker", verb): _progress(
            r"#\d+ (?:CACHED|DONE|sha256:|extracting|transferring|resolve|\.\.\.)",
            r"[0-9a-f]{12}: (?:Pull|Waiting|Download|Verifying|Extracting|Already|Layer|Push|Prep)",
        )
        for verb in ("build", "pull", "push", "compose")
    },
}
_DEEPEST: Final = max(map(len, _KNOWN))


def drop_progress(reading: Analysis, text: str) -> str | None:
    """Return the command's output without progress lines, or None if it has too few progress
    lines."""
    patterns = {
        found for command in reading.commands if (found := _patterns_for(command)) is not None
    }
    if not patterns:
        return None
    shown: list[str] = []
    total = gap = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        if _is_progress(line, patterns):
            gap += 1
            continue
        if gap:
            shown.append(_omission_line(gap))
        total, gap = total + gap, 0
        shown.append(line)
    if gap:
        shown.append(_omission_line(gap))
    return "".join(shown) if total + gap >= _WORTHWHILE else None


def _omission_line(count: int) -> str:
    return f"[{count} line{'' if count == 1 else 's'} of progress]\n"


def _is_progress(line: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    return any(each.match(line) for each in patterns) and not _TROUBLE.search(line)


def _patterns_for(command: ParsedCommand) -> re.Pattern[str] | None:
    texts = [command.name, *(word.text for word in command.arguments[:_DEEPEST])]
    words = tuple((text or b"?").decode("utf-8", "replace") for text in texts)
    for length in range(_DEEPEST, 0, -1):
        if words[:length] in _KNOWN:
            return _KNOWN[words[:length]]
    return None
