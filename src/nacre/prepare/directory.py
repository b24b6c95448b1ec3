"""Preparation step `check_directory`: checks that a command's directory exists and can be
entered."""

import os
import stat

from nacre.model.caller import Caller
from nacre.model.plan import Plan
from nacre.model.refusals import BadDirectory, DirectoryProblem


def check_directory(plan: Plan, caller: Caller) -> Plan | BadDirectory:
    """Refuse a command whose working directory is unusable, and name the nearest usable parent
    directory."""
    path = plan.command.cwd
    if caller.cwd_may_change and path == caller.cwd and not plan.command.cwd_given:
        # A running command may still change the session's directory, so the session checks the
        # directory when the next command starts.
        return plan
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
    except (OSError, ValueError):
        # A directory counts as missing if a parent in its path is a file (NotADirectoryError).
        return DirectoryProblem.MISSING
    return DirectoryProblem.FORBIDDEN if stat.S_ISDIR(mode) else DirectoryProblem.NOT_A_DIRECTORY


def _nearest(path: bytes) -> bytes | None:
    """Return the closest parent directory of `path` in which a command can run; None if there is
    none."""
    while path not in (b"", b"/"):
        path = os.path.dirname(path.rstrip(b"/"))
        if path and _find_problem(path) is None:
            return path
    return None
