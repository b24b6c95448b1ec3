"""Who calls a tool: where, in which workspace, with what, and in which session."""

import os
from collections.abc import Mapping
from functools import partial

from nacre.caller import Caller
from nacre.engine.engine import Engine
from nacre.loop import now
from nacre.refusals import BadDirectory, DirectoryProblem, Refused
from nacre.store import journal
from nacre.store.links import resolvers
from nacre.store.workspace import workspace


class Callers:
    """Made once for a directory: a tool stays in its workspace, whatever git does."""

    _known: Caller | None = None

    def __init__(
        self,
        engine: Engine,
        *,
        env: dict[bytes, bytes] | None,
        inherits: bool,
        tools: tuple[str, ...],
        session: str,
        remembers: bool,
    ) -> None:
        """`inherits`: commands have the host's environment; `session` is the name of one, or
        nothing; `remembers`: the contract has such."""
        self._engine = engine
        self._env = env
        self._inherits = inherits
        self._tools = tools
        self._name = session
        self._remembers = remembers
        self.begin_anew()

    def begin_anew(self) -> None:
        """From now on in another session, if that has no name."""
        self._session = self._name or os.urandom(12).hex()
        self._known = None

    def at(self, cwd: bytes) -> Caller:
        known = self._known  # another thread may stand elsewhere
        if known is None or known.cwd != cwd:
            place = workspace(cwd)
            key = _key(place) if self._remembers else ""
            self._known = known = Caller(
                cwd=cwd,
                workspace=place,
                env=self._env,
                inherits=self._inherits,
                place=key,
                session=self._session,
                session_name=self._name,
                stands=partial(_stands, self._engine, key),
                setup=_Setup(self._env, cwd),
                tools=self._tools,
                resolvers=resolvers(place),
                run_of=partial(_run_of, place),
            )
        return known


def here() -> bytes:
    """Raises Refused."""
    try:
        return os.getcwdb()
    except OSError:
        gone = BadDirectory(path=b".", problem=DirectoryProblem.MISSING)
        raise Refused(gone) from None


def here_or_nowhere() -> bytes:
    try:
        return here()
    except Refused:
        return b"."


def _key(place: bytes) -> str:
    try:
        return journal.key(place)
    except (OSError, ImportError):  # not even a descriptor to load what it takes
        return ""


# Functions, not methods: a tool that is forgotten shall be gone.


def _stands(engine: Engine, place: str, key: str) -> tuple[bytes | None, bool]:
    return engine.sessions().stands(place, key)


def _run_of(place: bytes, pid: int) -> str | None:
    from nacre.store.listing import run_of  # only hints ask

    return run_of(pid, place)


class _Setup:
    """Which snapshot there is of a user's own set-up. A change is noticed within a second."""

    _known = ""
    _until = 0.0

    def __init__(self, env: Mapping[bytes, bytes] | None, cwd: bytes) -> None:
        self._env = env
        self._cwd = cwd

    def __call__(self) -> str:
        if now() >= self._until:
            from nacre.store import snapshots  # only sessions have one

            env = os.environb if self._env is None else self._env
            self._known, self._until = snapshots.signature(env, self._cwd), now() + 1.0
        return self._known
