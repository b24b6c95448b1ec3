"""Preparation step that puts a fixed text, such as a wrapper command, before every script."""

from collections.abc import Callable

import msgspec

from nacre.model.caller import Caller
from nacre.model.plan import Plan


def prefix_step(prefix: str) -> Callable[[Plan, Caller], Plan]:
    before = prefix.encode("utf-8", "surrogateescape") + b" "

    def step(plan: Plan, caller: Caller) -> Plan:
        """Return the plan with the fixed text `prefix` before its script."""
        del caller
        command = plan.command
        prefixed = msgspec.structs.replace(command, script=before + command.script)
        return msgspec.structs.replace(plan, command=prefixed)

    return step
