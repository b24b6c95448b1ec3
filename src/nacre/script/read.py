"""The door: a script in, a `Reading` out."""

from functools import lru_cache
from typing import Final

from nacre.script.commands import Reading, Unreadable
from nacre.script.scene import Origin
from nacre.script.tokens import Bomb
from nacre.script.walk import Walker

LONGEST: Final = 128 * 1024


@lru_cache(maxsize=16)
def read(text: bytes, *, home: bytes | None = None, cwd: bytes | None = None) -> Reading:
    """Everything that this script would run. Never raises."""
    if len(text) > LONGEST:
        return _unread(text, f"it is longer than {LONGEST // 1024} KiB")
    walker = Walker(home, cwd)
    try:
        walker.script(text, Origin(base=0, given=True))
    except Bomb as bomb:
        return _unread(text, str(bomb))
    except RecursionError:
        return _unread(text, "it is nested too deep")
    return Reading(
        text=text,
        commands=tuple(walker.commands),
        functions=tuple(walker.functions),
        unreadable=walker.unreadable,
    )


def _unread(text: bytes, why: str) -> Reading:
    return Reading(text=text, commands=(), unreadable=Unreadable(why=f"not read: {why}"))
