"""Building the `Caller` of each tool call: the caller's directory, workspace, environment and
session."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial

from nacre.engine.engine import Engine
from nacre.eventloop import now
from nacre.model.caller import Caller
from nacre.model.refusals import BadDirectory, DirectoryProblem, Refused
from nacre.store import journal
from nacre.store.url_resolvers import HostResolver, build_resolvers
from nacre.store.workspace import find_workspace


class CallerFactory:
    """Factory of the `Caller` objects (facts about the calling side) for one tool. A
    `CallerFactory` caches the `Caller` of the most recent directory, so the tool keeps its
    workspace even if the git top level of that directory changes meanwhile."""

    def __init__(
        self,
        engine: Engine,
        *,
        env: dict[bytes, bytes] | None,
        inherits_env: bool,
        tools: tuple[str, ...],
        session: str,
        has_sessions: bool,
        resolvers: Mapping[str, HostResolver],
    ) -> None:
        """`inherits_env` says whether commands inherit the environment of the host program.
        `session` is the name of the tool's session (saved shell state), or empty for an unnamed
        session. If `has_sessions` is False, callers get no workspace key, because only sessions use
        the key. `resolvers` are functions of the host that resolve internal URLs."""
        self._known: Caller | None = None
        self._engine = engine
        self._env = env
        self._inherits_env = inherits_env
        self._tools = tools
        self._name = session
        self._has_sessions = has_sessions
        self._resolvers = dict(resolvers)
        self.new_session()

    def new_session(self) -> None:
        """Replace the tool's session by a new one if the session is unnamed; keep a named
        session."""
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
                resolvers=build_resolvers(place, self._resolvers),
                host_schemes=tuple(self._resolvers),
                find_run=partial(_find_run, place),
                read_output=partial(_read_output, place),
            )
        return known


def current_directory() -> bytes:
    """Return this process's current directory. Raises Refused if the current directory was
    deleted."""
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
    except (OSError, ImportError):  # importing the hash module fails if no descriptor is free
        return ""


# The callbacks in a `Caller` are functions, not bound methods of its factory: a bound method would
# create a reference cycle, which would keep an unused tool alive.


def _session_cwd(engine: Engine, place: str, key: str) -> tuple[bytes | None, bool]:
    return engine.sessions().read_cwd(place, key)


def _find_run(place: bytes, pid: int) -> str | None:
    # Lazy import: only the hints in a reply look up the run that a process belongs to.
    from nacre.store.listing import find_run_of_pid

    return find_run_of_pid(pid, place)


def _read_output(place: bytes, name: str, start: int, end: int) -> Iterator[bytes]:
    # Lazy import: only the reply about an output of megabytes reads the stored output.
    from nacre.store import stored_run
    from nacre.store.output_range import read_range

    with suppress(stored_run.NoSuchRun, OSError):
        run = stored_run.find_run(stored_run.parse_run_id(name), place)
        with run.open() as source:
            yield from read_range(source, start, end)


class _SetupSignature:
    """Callable that returns the signature of the user's set-up (shell startup files), cached for
    one second. A change of the user's startup files is noticed within a second."""

    def __init__(self, env: Mapping[bytes, bytes] | None, cwd: bytes) -> None:
        self._known = ""
        self._until = 0.0
        self._env = env
        self._cwd = cwd

    def __call__(self) -> str:
        if now() >= self._until:
            # lazy import: only sessions need the signature of the user's set-up
            from nacre.sessions.setup_signature import compute_signature

            env = os.environb if self._env is None else self._env
            self._known, self._until = compute_signature(env, self._cwd), now() + 1.0
        return self._known
