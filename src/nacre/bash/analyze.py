"""Entry point of the analysis of bash scripts: `analyze` takes a script and returns an
`Analysis`."""

from functools import lru_cache
from typing import Final

from nacre.bash.commands import Analysis, ParsedCommand, Unreadable
from nacre.bash.tokens import TooComplex
from nacre.bash.walk_context import Origin
from nacre.bash.walker import Walker

MAX_SCRIPT: Final = 128 * 1024
_FIRST_LINES: Final = 8 * 1024


@lru_cache(maxsize=16)
def analyze(text: bytes, *, home: bytes | None = None, cwd: bytes | None = None) -> Analysis:
    """Return the analysis of a bash script: all commands that bash would run. Never raises."""
    if len(text) > MAX_SCRIPT:
        return _analyze_first_lines(text, f"it is longer than {MAX_SCRIPT // 1024} KiB", home, cwd)
    walker = Walker(home, cwd)
    try:
        walker.script(text, Origin(base=0, given=True))
    except TooComplex as bomb:
        return _analyze_first_lines(text, str(bomb), home, cwd, tuple(walker.commands))
    except RecursionError:
        return _analyze_first_lines(
            text, "it is nested too deep", home, cwd, tuple(walker.commands)
        )
    return Analysis(
        text=text,
        commands=tuple(walker.commands),
        functions=tuple(walker.functions),
        unreadable=walker.unreadable,
    )


def _analyze_first_lines(
    text: bytes,
    why: str,
    home: bytes | None,
    cwd: bytes | None,
    commands: tuple[ParsedCommand, ...] = (),
) -> Analysis:
    """Return a partial analysis of a script that is too large or too complex. `commands` holds the
    commands that the full analysis found before it failed. If the full analysis found no commands,
    nacre analyzes the first 8 KiB of the script, because bash runs the first lines of a script
    before it reads the rest."""
    end = text.rfind(b"\n", 0, _FIRST_LINES) + 1
    if not commands and 0 < end < len(text):
        commands = analyze(text[:end], home=home, cwd=cwd).commands
    return Analysis(text=text, commands=commands, unreadable=Unreadable(why=f"not read: {why}"))
