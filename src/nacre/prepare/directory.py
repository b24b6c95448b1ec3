"""Whether the directory that a command shall run in is there and can be entered."""

import os

from nacre.caller import Caller
from nacre.plan import Plan
from nacre.refusals import BadDirectory, DirectoryProblem, Refusal


def directory(plan: Plan, caller: Caller) -> Plan | Refusal:
    """A step: refuse a directory that cannot be used, and name the nearest that can."""
    del caller  # its directory is already in the plan
    path = plan.command.cwd
    problem = _problem(path)
    if problem is None:
        return plan
    return BadDirectory(path=path, problem=problem, nearest=_nearest(path))


def _problem(path: bytes) -> DirectoryProblem | None:
    if not os.path.exists(path):
        return DirectoryProblem.MISSING
    if not os.path.isdir(path):
        return DirectoryProblem.NOT_A_DIRECTORY
    return None if os.access(path, os.X_OK) else DirectoryProblem.FORBIDDEN


def _nearest(path: bytes) -> bytes | None:
    """The closest parent that a command could run in."""
    while path not in (b"", b"/"):
        path = os.path.dirname(path.rstrip(b"/"))
        if path and _problem(path) is None:
            return path
    return None
