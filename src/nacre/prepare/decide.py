"""A plan goes through a contract's steps and comes out as a decision. Total: never raises.

A step is one function from plan and caller to a plan (perhaps changed) or a refusal. The first
refusal decides; the rest of the steps are not asked.
"""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from nacre.model.caller import Caller
from nacre.model.findings import AnyFinding
from nacre.model.plan import Plan
from nacre.model.refusals import AnyRefusal, Refusal

Step = Callable[[Plan, Caller], Plan | AnyRefusal]


class Decision(Struct, frozen=True, kw_only=True):
    """The plan as it shall run, or as far as it came, and why it shall not."""

    plan: Plan
    refusal: AnyRefusal | None = None

    @property
    def findings(self) -> tuple[AnyFinding, ...]:
        return self.plan.findings


def decide(plan: Plan, steps: Sequence[Step], caller: Caller) -> Decision:
    for step in steps:
        result = step(plan, caller)
        if isinstance(result, Refusal):
            return Decision(plan=plan, refusal=result)
        plan = result
    return Decision(plan=plan)


def add_findings(plan: Plan, *findings: AnyFinding) -> Plan:
    return msgspec.structs.replace(plan, findings=(*plan.findings, *findings))


def refuse_step(refusal: AnyRefusal) -> Step:
    """A step for what a call asks for and cannot have, to stand where that is decided."""

    def step(plan: Plan, caller: Caller) -> AnyRefusal:
        del plan, caller
        return refusal

    return step
