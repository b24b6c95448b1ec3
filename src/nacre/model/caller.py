"""Facts about the calling side: directory, workspace, environment, session and other tools.

`tool.caller_factory` builds one `Caller` for each directory. Contracts and steps read the caller.
"""

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from nacre.model.plan import Chore


class Resolved(Struct, frozen=True, kw_only=True):
    """Path that an internal URL refers to, with the chores that must be done before its use."""

    path: bytes
    chores: tuple[Chore, ...] = ()


# Function that resolves an internal URL: its argument is the decoded text after `scheme://`. Raises
# LookupError, with a sentence as message, for a URL that cannot be resolved.
Resolver = Callable[[str], Resolved]


@lru_cache(maxsize=1)
def _home_directory(user: int) -> bytes | None:
    import pwd  # lazy import: needed only when HOME is not set

    try:
        return os.fsencode(pwd.getpwuid(user).pw_dir)
    except KeyError:
        return None


_NONE: Mapping[str, Resolver] = MappingProxyType({})


def copy_environment() -> dict[bytes, bytes]:
    """Return a copy of this process's environment.

    The copy is made in C where `os.environb` exposes its dict.
    """
    data = getattr(os.environb, "_data", None)
    return dict(data if isinstance(data, dict) else os.environb)


class Caller(Struct, frozen=True, kw_only=True):
    cwd: bytes
    workspace: bytes = b""
    env: dict[bytes, bytes] | None = None  # environment for commands; None: that of this process
    workspace_key: str = ""  # key of the workspace in the store
    inherits_env: bool = True  # whether commands get the host process's own environment
    session: str = ""  # name of the session, or a random id for an unnamed session
    session_name: str = ""  # name chosen by the user; empty: private to this caller
    # Function that takes a session key. The function returns the session's working directory (None:
    # unknown) and whether that directory is final. While a command runs in the session, the
    # directory is not final.
    session_cwd: Callable[[str], tuple[bytes | None, bool]] = lambda _: (None, True)
    cwd_may_change: bool = False  # whether `cwd` may change before the command runs
    # Function that returns the signature of the user's set-up, which selects a stored snapshot.
    setup_signature: Callable[[], str] = lambda: ""
    tools: tuple[str, ...] = ()  # other tools that the agent could use instead of a shell
    resolvers: Mapping[str, Resolver] = _NONE  # resolvers of internal URLs, by scheme
    # Function that takes a pid and returns the id of the live run that started the process.
    find_run: Callable[[int], str | None] = lambda _: None

    @property
    def home(self) -> bytes | None:
        """Home directory, as in bash: HOME, or the password database if HOME is not set."""
        return self.variable(b"HOME") or _home_directory(os.getuid())

    @property
    def variables(self) -> tuple[tuple[bytes, bytes], ...]:
        """All environment variables, as pairs of name and value."""
        if self.env is not None:
            return tuple(self.env.items())
        return tuple(copy_environment().items())

    def variable(self, name: bytes) -> bytes | None:
        return (os.environb if self.env is None else self.env).get(name)
