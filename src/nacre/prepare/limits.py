"""The step `lines`: a trailing `| head` or `| tail` becomes a limit on what the reply shows."""

import msgspec

from nacre.caller import Caller
from nacre.findings import Limited
from nacre.plan import Plan
from nacre.prepare.notes import noted
from nacre.script.trail import trailing_limits


def lines(plan: Plan, caller: Caller) -> Plan:
    """A step: `rest | tail -n 5` becomes rest, of which the last 5 lines are shown."""
    del caller
    trail = trailing_limits(plan.command.script)
    if trail is None:
        return plan
    command = msgspec.structs.replace(plan.command, script=trail.script)
    limited = Limited(head=trail.head, tail=trail.tail)
    return noted(msgspec.structs.replace(plan, command=command), limited)
