"""`Caller`: facts about the calling side, such as directory, workspace, environment and session.

The module `tool.caller_factory` creates a new `Caller` object when the working directory of the
calls changes. The contracts (tool dialects) and the steps that prepare a command read facts about
the calling side from the `Caller`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from nacre.model.plan import Chore


class Resolved(Struct, frozen=True, kw_only=True):
    """Path to which an internal URL (such as `local://x`) refers, with the work that the engine
    must do before a command uses the path."""

    path: bytes
    chores: tuple[Chore, ...] = ()


# Resolver: a function that returns the path for an internal URL, given the decoded text after
# `scheme://`. For an internal URL that cannot be resolved, a resolver raises LookupError with a
# sentence as message.
Resolver = Callable[[str], Resolved]


@lru_cache(maxsize=1)
def _home_directory(user: int) -> bytes | None:
    import pwd  # lazy import of `pwd`, which is needed only when HOME is not set

    try:
        return os.fsencode(pwd.getpwuid(user).pw_dir)
    except KeyError:
        return None


_NONE: Mapping[str, Resolver] = MappingProxyType({})


def copy_environment() -> dict[bytes, bytes]:
    """Return a copy of this process's environment.

    The environment is copied by C code if `os.environb` exposes its private dict; otherwise it is
    copied item by item in Python.
    """
    data = getattr(os.environb, "_data", None)
    return dict(data if isinstance(data, dict) else os.environb)


class ReadPosition(NamedTuple):
    """How far replies have reported a run to a caller."""

    byte: int  # byte of the output up to which replies have shown it
    ended: bool  # whether a reply has reported the end of the run


class Caller(Struct, frozen=True, kw_only=True):
    cwd: bytes
    workspace: bytes = b""
    # Environment for commands; None: the environment of this process.
    env: dict[bytes, bytes] | None = None
    workspace_key: str = ""  # key of the workspace in the store (nacre's files on disk)
    inherits_env: bool = True  # whether commands inherit the environment of the host process
    session: str = ""  # name of the caller's session, or a random id for an unnamed session
    # Session name that the user chose; empty: an unnamed session, private to this caller.
    session_name: str = ""
    # Function that returns two facts about the session with a given key: its working directory
    # (None: unknown), and whether it is certain that no running command will change the directory.
    session_cwd: Callable[[str], tuple[bytes | None, bool]] = lambda _: (None, True)
    # Whether the session's directory `cwd` may change before the command runs.
    cwd_may_change: bool = False
    # Directory of the session if it cannot be entered, so that `cwd` is its nearest parent; else
    # None.
    moved_from: bytes | None = None
    # Function that returns a digest of the user's shell startup files, which selects a stored
    # snapshot of what these files define.
    setup_signature: Callable[[], str] = lambda: ""
    tools: tuple[str, ...] = ()  # other tools that the agent could use instead of a shell
    # Functions that resolve internal URLs such as `local://x`, by URL scheme.
    resolvers: Mapping[str, Resolver] = _NONE
    host_schemes: tuple[str, ...] = ()  # URL schemes whose resolvers the host has given
    # Function that takes a pid and returns the id of the live run that started the process.
    find_run: Callable[[int], str | None] = lambda _: None
    # Function that takes a run id and two byte offsets, and yields the stored output of the run
    # between these offsets in blocks.
    read_output: Callable[[str, int, int], Iterator[bytes]] = lambda *_: iter(())
    # Function that takes a run id and returns how far earlier replies to this caller have reported
    # the run; None: no earlier reply was about the run.
    read_position: Callable[[str], ReadPosition | None] = lambda _: None

    @property
    def home(self) -> bytes | None:
        """Home directory of the caller, as in bash: HOME, or the password database if HOME is not
        set."""
        return self.variable(b"HOME") or _home_directory(os.getuid())

    @property
    def variables(self) -> tuple[tuple[bytes, bytes], ...]:
        """All environment variables of the caller, as pairs of name and value."""
        if self.env is not None:
            return tuple(self.env.items())
        return tuple(copy_environment().items())

    def variable(self, name: bytes) -> bytes | None:
        return (os.environb if self.env is None else self.env).get(name)
