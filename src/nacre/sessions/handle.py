"""Session handles: the public API to list, inspect, fork, reset and remove sessions.

The module `store.session_files` reads and writes a session's data on disk, and `sessions.manager`
runs commands in a session.
"""

from datetime import UTC, datetime

from nacre.model.ids import check_session_name
from nacre.store import session_files
from nacre.store.session_files import SessionInfo, SessionProblem
from nacre.text.clean import decode

__all__ = ["SessionHandle", "SessionProblem"]


class SessionHandle:
    """Handle for one session, a persistent shell's saved state.

    `fork` copies the session: commands tried in the copy leave the original session unchanged.
    `reset` discards the saved state and keeps the session's name. `remove` deletes the session and
    its files.
    """

    def __init__(self, known: SessionInfo) -> None:
        self._info = known

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def contract(self) -> str:
        return self._info.contract

    @property
    def cwd(self) -> str:
        """Working directory of the session's shell; empty before the session's first command."""
        return decode(self._info.directory)

    @property
    def made(self) -> datetime:
        return datetime.fromtimestamp(self._info.created, UTC)

    @property
    def used(self) -> datetime:
        """Time when the session was last used."""
        return datetime.fromtimestamp(self._info.used, UTC)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the session's shell variables, without their values."""
        state = self._info.state
        return () if state is None else tuple(sorted(map(decode, state.variables)))

    @property
    def functions(self) -> tuple[str, ...]:
        state = self._info.state
        return () if state is None else tuple(sorted(map(decode, state.names)))

    def reset(self) -> None:
        """Discard the session's saved shell state. Raises SessionProblem while the session runs a
        command."""
        session_files.reset_session(self._info)

    def fork(self, name: str) -> "SessionHandle":
        """Create a session with a copy of this session's state. Raises SessionProblem while this
        session runs a command, or when another session has the name. Raises ValueError for an
        invalid name."""
        return SessionHandle(session_files.fork_session(self._info, check_session_name(name)))

    def remove(self) -> None:
        """Delete the session and its files. Raises SessionProblem while the session runs a
        command."""
        session_files.remove_session(self._info)

    def __repr__(self) -> str:
        return f"<session {self.name} of {self.contract}, in {self.cwd or 'no directory yet'}>"


def list_sessions(place: str) -> list[SessionHandle]:
    return [SessionHandle(known) for known in session_files.list_sessions(place)]


def find_session(place: str, name: str, contract: str | None = None) -> SessionHandle:
    """Return the session with this name. Raises LookupError if no session has the name, or if
    sessions of several contracts (dialects of the tool) have it."""
    there = [each for each in list_sessions(place) if contract in (None, each.contract)]
    found = [each for each in there if each.name == name]
    if not found:
        names = ", ".join(sorted({each.name for each in there})) or "none yet"
        raise LookupError(f"there is no session {name} in this workspace; sessions: {names}")
    contracts = sorted({each.contract for each in found})
    if len(contracts) > 1:
        raise LookupError(
            f"{' and '.join(contracts)} each have a session {name}; choose one with --contract"
        )
    return found[0]
