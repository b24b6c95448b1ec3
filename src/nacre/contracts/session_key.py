"""Choice of the session (persistent shell) in which a tool call runs."""

from collections.abc import Hashable
from functools import lru_cache

import msgspec

from nacre.bash.paths import is_enterable, nearest_directory
from nacre.model.caller import Caller
from nacre.model.ids import digest, session_key
from nacre.model.plan import Session


def select_session(
    contract: str,
    caller: Caller,
    name: str,
    *,
    owner: str,
    shell_kind: Hashable,
    setup: str = "",
    fixed_cwd: bool = False,
) -> tuple[Session, Caller]:
    """Return the session of a call, and a copy of `caller` whose directory is the directory of the
    session's shell. The session's key is built from `contract`, `owner` and `shell_kind`, and
    distinguishes sessions of the same name. With `fixed_cwd`, every command of the session starts
    in the caller's own directory."""
    key = _build_key(contract, owner, shell_kind)
    known, sure = (caller.cwd, True) if fixed_cwd else caller.session_cwd(key)
    stood, moved_from = known or caller.cwd, None
    if sure and known is not None and not is_enterable(known):
        nearest = nearest_directory(known)
        if nearest is not None:
            stood, moved_from = nearest, known
    session = Session(
        workspace_key=caller.workspace_key,
        key=key,
        name=name,
        contract=contract,
        cwd_when_decided=stood,
        setup_signature=setup,
        fixed_cwd=fixed_cwd,
        move_noted=moved_from is not None,
    )
    return session, msgspec.structs.replace(
        caller, cwd=stood, cwd_may_change=not sure, moved_from=moved_from
    )


@lru_cache(maxsize=16)
def _build_key(contract: str, owner: str, shell_kind: Hashable) -> str:
    return session_key(contract, owner, digest(msgspec.msgpack.encode(shell_kind)))
