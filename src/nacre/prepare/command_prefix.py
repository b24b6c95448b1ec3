"""The step that puts something before every command, such as a wrapper."""

from collections.abc import Callable

import msgspec

from nacre.model.caller import Caller
from nacre.model.plan import Plan


def prefix_step(prefix: str) -> Callable[[Plan, Caller], Plan]:
    before = prefix.encode("utf-8", "surrogateescape") + b" "

    def step(plan: Plan, caller: Caller) -> Plan:
        """Put the prefix before what bash gets."""
        del caller
        command = plan.command
        prefixed = msgspec.structs.replace(command, script=before + command.script)
        return msgspec.structs.replace(plan, command=prefixed)

    return step
