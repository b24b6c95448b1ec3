"""Whether the directory that a command shall run in is there and can be entered."""

import os
import stat

from nacre.caller import Caller
from nacre.plan import Plan
from nacre.refusals import BadDirectory, DirectoryProblem


def directory(plan: Plan, caller: Caller) -> Plan | BadDirectory:
    """A step: refuse a directory that cannot be used, and name the nearest that can."""
    path = plan.command.cwd
    if caller.moves and path == caller.cwd and not plan.command.placed:
        return plan  # where that is by then is seen by who runs it
    problem = _problem(path)
    if problem is None:
        return plan
    return BadDirectory(path=path, problem=problem, nearest=_nearest(path))


def _problem(path: bytes) -> DirectoryProblem | None:
    try:
        if os.access(path + b"/.", os.X_OK):
            return None
        mode = os.stat(path).st_mode
    except PermissionError:
        return DirectoryProblem.FORBIDDEN
    except (OSError, ValueError):  # also where a file stands in a parent's place
        return DirectoryProblem.MISSING
    return DirectoryProblem.FORBIDDEN if stat.S_ISDIR(mode) else DirectoryProblem.NOT_A_DIRECTORY


def _nearest(path: bytes) -> bytes | None:
    """The closest parent that a command could run in."""
    while path not in (b"", b"/"):
        path = os.path.dirname(path.rstrip(b"/"))
        if path and _problem(path) is None:
            return path
    return None
