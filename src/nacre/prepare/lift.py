"""The step `lift`: a leading `cd` becomes the directory to run in."""

import os
import pwd

import msgspec

from nacre.caller import Caller
from nacre.findings import Lifted
from nacre.plan import Plan
from nacre.prepare.notes import noted
from nacre.script.lead import leading_cd
from nacre.script.paths import at


def lift(plan: Plan, caller: Caller) -> Plan:
    """A step: `cd PATH && rest` becomes rest, to be run in PATH."""
    command = plan.command
    if command.cwd != caller.cwd:  # the call says itself where
        return plan
    lead = leading_cd(command.script)
    if lead is None:
        return plan
    relative = not lead.path.startswith((b"/", b"./", b"../")) and lead.path not in (b".", b"..")
    if relative and not lead.tilde and caller.variable(b"CDPATH"):
        return plan  # bash would look elsewhere first
    path = resolved(lead.path, caller, tilde=lead.tilde)
    if path is None:
        return plan
    moved = msgspec.structs.replace(command, script=command.script[lead.rest :], cwd=path)
    return noted(msgspec.structs.replace(plan, command=moved), Lifted(path=lead.path))


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
