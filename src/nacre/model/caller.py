"""Who asks: the directory, the variables and the other tools that a call comes with."""

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from nacre.model.plan import Chore


class Resolved(Struct, frozen=True, kw_only=True):
    """What an internal URL stands for, and what must be made before it can be used."""

    path: bytes
    chores: tuple[Chore, ...] = ()


# Gets what stands behind scheme://, decoded. Raises LookupError, with a sentence, when it cannot.
Resolver = Callable[[str], Resolved]


@lru_cache(maxsize=1)
def _home_directory(user: int) -> bytes | None:
    import pwd  # few need it

    try:
        return os.fsencode(pwd.getpwuid(user).pw_dir)
    except KeyError:
        return None


_NONE: Mapping[str, Resolver] = MappingProxyType({})


def copy_environment() -> dict[bytes, bytes]:
    """The environment of this process; copied in C where Python lets us."""
    data = getattr(os.environb, "_data", None)
    return dict(data if isinstance(data, dict) else os.environb)


class Caller(Struct, frozen=True, kw_only=True):
    cwd: bytes
    workspace: bytes = b""
    env: dict[bytes, bytes] | None = None  # None: exactly what this process has
    workspace_key: str = ""  # the workspace, by the name under which the store knows it
    inherits_env: bool = True  # these are just what his process has
    session: str = ""  # whose calls these are, where they have one shell that remembers
    session_name: str = ""  # as people call that; without one it is nobody else's
    # Where the shell of a session stands, and whether it is sure to stand there still.
    session_cwd: Callable[[str], tuple[bytes | None, bool]] = lambda _: (None, True)
    cwd_may_change: bool = False  # where he stands may change before his command runs
    setup_signature: Callable[[], str] = lambda: ""  # which snapshot there is of his own set-up
    tools: tuple[str, ...] = ()  # what else the caller could use instead of a shell
    resolvers: Mapping[str, Resolver] = _NONE  # of internal URLs, by scheme
    find_run: Callable[[int], str | None] = lambda _: None  # which run of his a process belongs to

    @property
    def home(self) -> bytes | None:
        """As bash has it: where HOME is not set, it asks the system."""
        return self.variable(b"HOME") or _home_directory(os.getuid())

    @property
    def variables(self) -> tuple[tuple[bytes, bytes], ...]:
        """All of them."""
        if self.env is not None:
            return tuple(self.env.items())
        return tuple(copy_environment().items())

    def variable(self, name: bytes) -> bytes | None:
        return (os.environb if self.env is None else self.env).get(name)
