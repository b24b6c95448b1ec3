"""The door: a script in, a `Reading` out."""

from functools import lru_cache
from typing import Final

from nacre.script.commands import Command, Reading, Unreadable
from nacre.script.scene import Origin
from nacre.script.tokens import Bomb
from nacre.script.walk import Walker

LONGEST: Final = 128 * 1024
_FIRST_LINES: Final = 8 * 1024


@lru_cache(maxsize=16)
def read(text: bytes, *, home: bytes | None = None, cwd: bytes | None = None) -> Reading:
    """Everything that this script would run. Never raises."""
    if len(text) > LONGEST:
        return _unread(text, f"it is longer than {LONGEST // 1024} KiB", home, cwd)
    walker = Walker(home, cwd)
    try:
        walker.script(text, Origin(base=0, given=True))
    except Bomb as bomb:
        return _unread(text, str(bomb), home, cwd, tuple(walker.commands))
    except RecursionError:
        return _unread(text, "it is nested too deep", home, cwd, tuple(walker.commands))
    return Reading(
        text=text,
        commands=tuple(walker.commands),
        functions=tuple(walker.functions),
        unreadable=walker.unreadable,
    )


def _unread(
    text: bytes,
    why: str,
    home: bytes | None,
    cwd: bytes | None,
    commands: tuple[Command, ...] = (),
) -> Reading:
    """What is too much is not read; but for its first lines, which bash would run."""
    end = text.rfind(b"\n", 0, _FIRST_LINES) + 1
    if not commands and 0 < end < len(text):
        commands = read(text[:end], home=home, cwd=cwd).commands
    return Reading(text=text, commands=commands, unreadable=Unreadable(why=f"not read: {why}"))
