"""Preparation step `check_directory`: checks that a command's directory exists and can be
entered."""

import os
import stat

from nacre.bash.paths import is_enterable, nearest_directory
from nacre.model.caller import Caller
from nacre.model.findings import SessionMoved
from nacre.model.plan import Plan
from nacre.model.refusals import BadDirectory, DirectoryProblem
from nacre.prepare.decide import add_findings


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
        return _note_move(plan, caller)
    return BadDirectory(path=path, problem=problem, nearest=nearest_directory(path))


def _note_move(plan: Plan, caller: Caller) -> Plan:
    """Note that the session's own directory cannot be entered, unless the call names another
    directory by an absolute path."""
    command = plan.command
    below = (command.cwd + b"/").startswith(caller.cwd.rstrip(b"/") + b"/")
    if caller.moved_from is None or (command.cwd_given and not below):
        return plan
    return add_findings(plan, SessionMoved(before=caller.moved_from, now=caller.cwd))


def _find_problem(path: bytes) -> DirectoryProblem | None:
    try:
        if is_enterable(path):
            return None
        mode = os.stat(path).st_mode
    except PermissionError:
        return DirectoryProblem.FORBIDDEN
    except (OSError, ValueError):
        # A directory counts as missing if a parent in its path is a file (NotADirectoryError).
        return DirectoryProblem.MISSING
    return DirectoryProblem.FORBIDDEN if stat.S_ISDIR(mode) else DirectoryProblem.NOT_A_DIRECTORY
