"""Applying the preparation steps of a contract (tool dialect) to a plan.

A preparation step is a function that gets a plan and a caller, and returns the same plan, a changed
plan or a refusal. After the first refusal, the remaining preparation steps are not called.
Preparation steps return refusals instead of raising exceptions, so `decide` never raises.
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
    """Result of `decide`: the plan after the last successful preparation step, and the refusal, if
    any."""

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
    """Return a preparation step that always refuses the plan; it must be the last step, because
    `decide` calls no step after a refusal."""

    def step(plan: Plan, caller: Caller) -> AnyRefusal:
        del plan, caller
        return refusal

    return step
