"""Preparation step `limit_lines`: turns a trailing `| head` or `| tail` into a limit on the lines
in the reply."""

import msgspec

from nacre.bash.trailing_limit import find_trailing_limit
from nacre.model.caller import Caller
from nacre.model.findings import LinesLimited
from nacre.model.plan import Plan
from nacre.prepare.decide import add_findings


def limit_lines(plan: Plan, caller: Caller) -> Plan:
    """Remove a trailing `| head` or `| tail` from the script, and limit the lines in the reply
    accordingly."""
    del caller
    trail = find_trailing_limit(plan.command.script)
    if trail is None:
        return plan
    command = msgspec.structs.replace(plan.command, script=trail.script)
    limited = LinesLimited(head=trail.head, tail=trail.tail)
    return add_findings(msgspec.structs.replace(plan, command=command), limited)
