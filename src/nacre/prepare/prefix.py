"""The step `prefixed`: something to put before every command, such as a wrapper."""

from collections.abc import Callable

import msgspec

from nacre.caller import Caller
from nacre.plan import Plan


def prefixed(prefix: str) -> Callable[[Plan, Caller], Plan]:
    before = prefix.encode("utf-8", "surrogateescape") + b" "

    def step(plan: Plan, caller: Caller) -> Plan:
        """Put the prefix before what bash gets."""
        del caller
        command = plan.command
        made = msgspec.structs.replace(command, script=before + command.script)
        return msgspec.structs.replace(plan, command=made)

    return step
