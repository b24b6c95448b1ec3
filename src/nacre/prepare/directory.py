"""The step `check_directory`: checks that a command's directory exists and can be entered."""

import os
import stat

from nacre.model.caller import Caller
from nacre.model.plan import Plan
from nacre.model.refusals import BadDirectory, DirectoryProblem


def check_directory(plan: Plan, caller: Caller) -> Plan | BadDirectory:
    """Refuse an unusable working directory. The refusal names the nearest usable parent."""
    path = plan.command.cwd
    if caller.cwd_may_change and path == caller.cwd and not plan.command.cwd_given:
        return plan  # the session checks its current directory when the command starts
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
    except (OSError, ValueError):  # also NotADirectoryError: a parent in the path is a file
        return DirectoryProblem.MISSING
    return DirectoryProblem.FORBIDDEN if stat.S_ISDIR(mode) else DirectoryProblem.NOT_A_DIRECTORY


def _nearest(path: bytes) -> bytes | None:
    """Return the closest parent directory that a command can run in."""
    while path not in (b"", b"/"):
        path = os.path.dirname(path.rstrip(b"/"))
        if path and _find_problem(path) is None:
            return path
    return None
