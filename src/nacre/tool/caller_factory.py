"""Building the `Caller` of each tool call: directory, workspace, environment and session."""

import os
from collections.abc import Mapping
from functools import partial

from nacre.engine.engine import Engine
from nacre.eventloop import now
from nacre.model.caller import Caller
from nacre.model.refusals import BadDirectory, DirectoryProblem, Refused
from nacre.store import journal
from nacre.store.url_resolvers import build_resolvers
from nacre.store.workspace import find_workspace


class CallerFactory:
    """Factory for the callers of one tool. The factory caches the caller of a directory. The tool
    therefore keeps its workspace, even if git repositories change meanwhile."""

    def __init__(
        self,
        engine: Engine,
        *,
        env: dict[bytes, bytes] | None,
        inherits_env: bool,
        tools: tuple[str, ...],
        session: str,
        has_sessions: bool,
    ) -> None:
        """`inherits_env`: commands inherit the host's environment. `session`: name of the session;
        empty for an unnamed session. `has_sessions`: the contract has sessions."""
        self._known: Caller | None = None
        self._engine = engine
        self._env = env
        self._inherits_env = inherits_env
        self._tools = tools
        self._name = session
        self._has_sessions = has_sessions
        self.new_session()

    def new_session(self) -> None:
        """Replace an unnamed session by a new unnamed session. A named session stays the same."""
        self._session = self._name or os.urandom(12).hex()
        self._known = None

    def at(self, cwd: bytes) -> Caller:
        known = self._known  # local copy: another thread may replace the cached caller
        if known is None or known.cwd != cwd:
            place = find_workspace(cwd)
            key = _workspace_key(place) if self._has_sessions else ""
            self._known = known = Caller(
                cwd=cwd,
                workspace=place,
                env=self._env,
                inherits_env=self._inherits_env,
                workspace_key=key,
                session=self._session,
                session_name=self._name,
                session_cwd=partial(_session_cwd, self._engine, key),
                setup_signature=_SetupSignature(self._env, cwd),
                tools=self._tools,
                resolvers=build_resolvers(place),
                find_run=partial(_find_run, place),
            )
        return known


def current_directory() -> bytes:
    """Return this process's current directory. Raises Refused if the directory was deleted."""
    try:
        return os.getcwdb()
    except OSError:
        gone = BadDirectory(path=b".", problem=DirectoryProblem.MISSING)
        raise Refused(gone) from None


def cwd_or_dot() -> bytes:
    try:
        return current_directory()
    except Refused:
        return b"."


def _workspace_key(place: bytes) -> str:
    try:
        return journal.workspace_key(place)
    except (OSError, ImportError):  # no free descriptor for importing the hash module
        return ""


# These are functions, not methods. A `Caller` that held a bound method of its factory would form a
# reference cycle. The cycle would keep an unused tool alive.


def _session_cwd(engine: Engine, place: str, key: str) -> tuple[bytes | None, bool]:
    return engine.sessions().read_cwd(place, key)


def _find_run(place: bytes, pid: int) -> str | None:
    from nacre.store.listing import find_run_of_pid  # lazy import: only hints need this function

    return find_run_of_pid(pid, place)


class _SetupSignature:
    """Callable that returns the signature of the user's set-up, cached for one second. A change of
    the set-up is noticed within a second."""

    def __init__(self, env: Mapping[bytes, bytes] | None, cwd: bytes) -> None:
        self._known = ""
        self._until = 0.0
        self._env = env
        self._cwd = cwd

    def __call__(self) -> str:
        if now() >= self._until:
            # lazy import: only sessions need the signature
            from nacre.sessions.setup_signature import compute_signature

            env = os.environb if self._env is None else self._env
            self._known, self._until = compute_signature(env, self._cwd), now() + 1.0
        return self._known
