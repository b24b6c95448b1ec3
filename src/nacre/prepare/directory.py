"""Whether the directory that a command shall run in is there and can be entered."""

import os
import stat

from nacre.model.caller import Caller
from nacre.model.plan import Plan
from nacre.model.refusals import BadDirectory, DirectoryProblem


def check_directory(plan: Plan, caller: Caller) -> Plan | BadDirectory:
    """A step: refuse a directory that cannot be used, and name the nearest that can."""
    path = plan.command.cwd
    if caller.cwd_may_change and path == caller.cwd and not plan.command.cwd_given:
        return plan  # where that is by then is seen by who runs it
    problem = _find_problem(path)
    if problem is None:
        return plan
    return BadDirectory(path=path, problem=problem, nearest=_nearest(path))


def _find_problem(path: bytes) -> DirectoryProblem | None:
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
        if path and _find_problem(path) is None:
            return path
    return None
