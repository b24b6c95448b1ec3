"""The preparation step `lift_leading_cd`: turns `cd PATH &&` at the start of a script into the
command's working directory."""

import os
import pwd
import re
from typing import Final

import msgspec

from nacre.bash.leading_cd import find_leading_cd
from nacre.bash.paths import resolve_path
from nacre.model.caller import Caller
from nacre.model.findings import CdLifted
from nacre.model.plan import Plan
from nacre.prepare.decide import add_findings

_GOES_BACK: Final = re.compile(rb"OLDPWD|~-|\bcd\s+-(?=[\s;&|)]|\Z)|\bpopd\b|\bdirs\b")
_URL: Final = re.compile(rb"[a-z]+://")


def lift_leading_cd(plan: Plan, caller: Caller) -> Plan:
    """Replace the script `cd PATH && rest` by `rest` and set the working directory to PATH."""
    command = plan.command
    if command.cwd_given:
        return plan
    lead = find_leading_cd(command.script)
    if lead is None:
        return plan
    relative = not lead.path.startswith((b"/", b"./", b"../")) and lead.path not in (b".", b"..")
    if relative and not lead.tilde and caller.variable(b"CDPATH"):
        return plan  # bash searches the directories in CDPATH first for a relative `cd`
    if caller.cwd_may_change and not (lead.tilde or lead.path.startswith(b"/")):
        return plan  # the directory in which a relative `cd` starts is not known before the run
    if _URL.match(lead.path):
        path: bytes | None = lead.path  # the `cd` path is a URL that a later step resolves
    else:
        path = resolve_from_caller(lead.path, caller, tilde=lead.tilde)
    if path is None or not _can_pass(lead.path, caller):
        return plan
    if _GOES_BACK.search(command.script, lead.rest):
        return plan  # the script later returns to the previous directory, so its leading `cd` stays
    moved = msgspec.structs.replace(command, script=command.script[lead.rest :], cwd=path)
    return add_findings(msgspec.structs.replace(plan, command=moved), CdLifted(path=lead.path))


def _can_pass(path: bytes, caller: Caller) -> bool:
    """Return whether bash could enter the path: bash accepts `a/..` only if `a` is a directory."""
    before, dots, _ = path.partition(b"/..")
    if not dots or before.strip(b"./") == b"" or before.startswith(b"~"):
        return True
    return os.path.isdir(resolve_path(caller.cwd, before))


def resolve_from_caller(path: bytes, caller: Caller, *, tilde: bool) -> bytes | None:
    """Return the absolute form of the path, resolved from the caller's directory without following
    symbolic links. Return None for a path that starts with `~` or `~user` if that home directory is
    unknown."""
    if tilde:
        user, slash, rest = path[1:].partition(b"/")
        home = caller.home if not user else _home_of(user)
        if home is None:
            return None
        path = home + slash + rest
    return resolve_path(caller.cwd, path)


def _home_of(user: bytes) -> bytes | None:
    try:
        return os.fsencode(pwd.getpwnam(os.fsdecode(user)).pw_dir)
    except (KeyError, ValueError):
        return None
