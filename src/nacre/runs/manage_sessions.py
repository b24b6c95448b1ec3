"""The request `ManageSessions` of the tool `job`: list, reset or remove sessions of a workspace."""

import time

from nacre.model.refusals import Refused, Unavailable
from nacre.model.requests import Listing, ManageSessions, SessionStatus
from nacre.sessions.handle import find_session, list_sessions
from nacre.store import journal
from nacre.store.session_files import SessionProblem

_CONTRACT = "nacre"  # only the `nacre` contract has a tool that manages sessions


def manage_sessions(request: ManageSessions, workspace: bytes) -> Listing:
    """Reset or remove a session, and list the sessions that are left. Raises Refused."""
    try:
        place = journal.workspace_key(workspace)
        name = request.reset or request.remove
        if name is not None:
            session = find_session(place, name, _CONTRACT)
            if request.remove is not None:
                session.remove()
            else:
                session.reset()
        found = [each for each in list_sessions(place) if each.contract == _CONTRACT]
    except (LookupError, SessionProblem, OSError) as error:
        raise Refused(Unavailable(problem=str(error))) from None
    now = time.time()
    return Listing(
        runs=(),
        sessions=tuple(
            SessionStatus(
                name=each.name,
                cwd=each.cwd or "",
                idle_seconds=max(0.0, now - each.used.timestamp()),
            )
            for each in found
        ),
    )
