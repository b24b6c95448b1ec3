"""Sessions, for people and programs: what there is, and how to go back."""

from datetime import UTC, datetime

from nacre.model.ids import check_session_name
from nacre.store import session_files
from nacre.store.session_files import SessionInfo, SessionProblem
from nacre.text.clean import decode

__all__ = ["SessionHandle", "SessionProblem"]


class SessionHandle:
    """A shell that remembers. `fork` it, try something in the copy, and go back by using the first
    again; `reset` it to begin anew; `remove` it when nobody wants it any more."""

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
        """Where it stands; empty before its first command."""
        return decode(self._info.directory)

    @property
    def made(self) -> datetime:
        return datetime.fromtimestamp(self._info.created, UTC)

    @property
    def used(self) -> datetime:
        """When, the last time."""
        return datetime.fromtimestamp(self._info.used, UTC)

    @property
    def variables(self) -> tuple[str, ...]:
        """Their names, never their values."""
        state = self._info.state
        return () if state is None else tuple(sorted(map(decode, state.variables)))

    @property
    def functions(self) -> tuple[str, ...]:
        state = self._info.state
        return () if state is None else tuple(sorted(map(decode, state.names)))

    def reset(self) -> None:
        """Raises SessionProblem when a command of it runs."""
        session_files.reset_session(self._info)

    def fork(self, name: str) -> "SessionHandle":
        """Another one, which begins where this one is now. Raises SessionProblem, ValueError."""
        return SessionHandle(session_files.fork_session(self._info, check_session_name(name)))

    def remove(self) -> None:
        """Raises SessionProblem when a command of it runs."""
        session_files.remove_session(self._info)

    def __repr__(self) -> str:
        return f"<session {self.name} of {self.contract}, in {self.cwd or 'no directory yet'}>"


def list_sessions(place: str) -> list[SessionHandle]:
    return [SessionHandle(known) for known in session_files.list_sessions(place)]


def find_session(place: str, name: str, contract: str | None = None) -> SessionHandle:
    """Raises LookupError, with the names that there are."""
    there = [each for each in list_sessions(place) if contract in (None, each.contract)]
    found = [each for each in there if each.name == name]
    if not found:
        names = ", ".join(sorted({each.name for each in there})) or "none yet"
        raise LookupError(f"there is no session {name} in this workspace; there is {names}")
    contracts = sorted({each.contract for each in found})
    if len(contracts) > 1:
        raise LookupError(
            f"{' and '.join(contracts)} have a session {name} each; say which, by --contract"
        )
    return found[0]
