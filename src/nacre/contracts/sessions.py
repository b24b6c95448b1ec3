"""Which session a call belongs to: its key, and where its shell stands."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Final

import msgspec

from nacre.caller import Caller
from nacre.digest import digest, session_key
from nacre.plan import Session

_LONGEST_NAME: Final = 100


def session_name(name: str) -> str:
    """Raises ValueError for what cannot be one."""
    if not isinstance(name, str):
        raise ValueError(f"a session's name is text, not {name!r}")
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise ValueError(
            f"a session's name has 1 to {_LONGEST_NAME} characters that can be printed, and no "
            f"blanks around it; {name[:_LONGEST_NAME]!r} has not"
        )
    return name


def remembering(
    contract: str, caller: Caller, name: str, *, whose: str, made_of: Hashable, setup: str = ""
) -> tuple[Session, Caller]:
    """The session of that name, and its caller, who stands where its shell does. `whose` tells it
    from others of that name, and so does all that a shell of it is made of."""
    key = _key(contract, whose, made_of)
    known, sure = caller.stands(key)
    stood = known or caller.cwd
    session = Session(
        place=caller.place, key=key, name=name, contract=contract, stood=stood, setup=setup
    )
    return session, msgspec.structs.replace(caller, cwd=stood, moves=not sure)


@lru_cache(maxsize=16)
def _key(contract: str, whose: str, made_of: Hashable) -> str:
    return session_key(contract, whose, digest(msgspec.msgpack.encode(made_of)))
