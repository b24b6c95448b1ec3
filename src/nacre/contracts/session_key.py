"""Which session a call belongs to: its key, and where its shell stands."""

from collections.abc import Hashable
from functools import lru_cache

import msgspec

from nacre.model.caller import Caller
from nacre.model.ids import digest, session_key
from nacre.model.plan import Session


def select_session(
    contract: str, caller: Caller, name: str, *, owner: str, shell_kind: Hashable, setup: str = ""
) -> tuple[Session, Caller]:
    """The session of that name, and its caller, who stands where its shell does. `owner` tells it
    from others of that name, and so does all that a shell of it is made of."""
    key = _build_key(contract, owner, shell_kind)
    known, sure = caller.session_cwd(key)
    stood = known or caller.cwd
    session = Session(
        workspace_key=caller.workspace_key,
        key=key,
        name=name,
        contract=contract,
        cwd_when_decided=stood,
        setup_signature=setup,
    )
    return session, msgspec.structs.replace(caller, cwd=stood, cwd_may_change=not sure)


@lru_cache(maxsize=16)
def _build_key(contract: str, owner: str, shell_kind: Hashable) -> str:
    return session_key(contract, owner, digest(msgspec.msgpack.encode(shell_kind)))
