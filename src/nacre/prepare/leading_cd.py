"""The step `lift_leading_cd`: a leading `cd` becomes the directory to run in."""

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
    """A step: `cd PATH && rest` becomes rest, to be run in PATH."""
    command = plan.command
    if command.cwd_given:
        return plan
    lead = find_leading_cd(command.script)
    if lead is None:
        return plan
    relative = not lead.path.startswith((b"/", b"./", b"../")) and lead.path not in (b".", b"..")
    if relative and not lead.tilde and caller.variable(b"CDPATH"):
        return plan  # bash would look elsewhere first
    if caller.cwd_may_change and not (lead.tilde or lead.path.startswith(b"/")):
        return plan  # only bash will know from where it goes
    if _URL.match(lead.path):
        path: bytes | None = lead.path  # for the next step
    else:
        path = resolve_from_caller(lead.path, caller, tilde=lead.tilde)
    if path is None or not _can_pass(lead.path, caller):
        return plan
    if _GOES_BACK.search(command.script, lead.rest):
        return plan  # the rest knows that there was a cd
    moved = msgspec.structs.replace(command, script=command.script[lead.rest :], cwd=path)
    return add_findings(msgspec.structs.replace(plan, command=moved), CdLifted(path=lead.path))


def _can_pass(path: bytes, caller: Caller) -> bool:
    """bash goes back (`a/..`) only from where it could have gone."""
    before, dots, _ = path.partition(b"/..")
    if not dots or before.strip(b"./") == b"" or before.startswith(b"~"):
        return True
    return os.path.isdir(resolve_path(caller.cwd, before))


def resolve_from_caller(path: bytes, caller: Caller, *, tilde: bool) -> bytes | None:
    """The path from where the caller stands; symbolic links stay what they are. None for a tilde
    that leads nowhere."""
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
