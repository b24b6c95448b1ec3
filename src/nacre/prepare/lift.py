"""The step `lift`: a leading `cd` becomes the directory to run in."""

import os
import pwd
import re
from typing import Final

import msgspec

from nacre.caller import Caller
from nacre.findings import Lifted
from nacre.plan import Plan
from nacre.prepare.notes import noted
from nacre.script.lead import leading_cd
from nacre.script.paths import at

_GOES_BACK: Final = re.compile(rb"OLDPWD|~-|\bcd\s+-(?=[\s;&|)]|\Z)|\bpopd\b|\bdirs\b")
_URL: Final = re.compile(rb"[a-z]+://")


def lift(plan: Plan, caller: Caller) -> Plan:
    """A step: `cd PATH && rest` becomes rest, to be run in PATH."""
    command = plan.command
    if command.placed:
        return plan
    lead = leading_cd(command.script)
    if lead is None:
        return plan
    relative = not lead.path.startswith((b"/", b"./", b"../")) and lead.path not in (b".", b"..")
    if relative and not lead.tilde and caller.variable(b"CDPATH"):
        return plan  # bash would look elsewhere first
    if caller.moves and not (lead.tilde or lead.path.startswith(b"/")):
        return plan  # only bash will know from where it goes
    if _URL.match(lead.path):
        path: bytes | None = lead.path  # for the next step
    else:
        path = resolved(lead.path, caller, tilde=lead.tilde)
    if path is None or not _goes_through(lead.path, caller):
        return plan
    if _GOES_BACK.search(command.script, lead.rest):
        return plan  # the rest knows that there was a cd
    moved = msgspec.structs.replace(command, script=command.script[lead.rest :], cwd=path)
    return noted(msgspec.structs.replace(plan, command=moved), Lifted(path=lead.path))


def _goes_through(path: bytes, caller: Caller) -> bool:
    """bash goes back (`a/..`) only from where it could have gone."""
    before, dots, _ = path.partition(b"/..")
    if not dots or before.strip(b"./") == b"" or before.startswith(b"~"):
        return True
    return os.path.isdir(at(caller.cwd, before))


def resolved(path: bytes, caller: Caller, *, tilde: bool) -> bytes | None:
    """The path from where the caller stands; symbolic links stay what they are. None for a tilde
    that leads nowhere."""
    if tilde:
        user, slash, rest = path[1:].partition(b"/")
        home = caller.home if not user else _home_of(user)
        if home is None:
            return None
        path = home + slash + rest
    return at(caller.cwd, path)


def _home_of(user: bytes) -> bytes | None:
    try:
        return os.fsencode(pwd.getpwnam(os.fsdecode(user)).pw_dir)
    except (KeyError, ValueError):
        return None
