"""Applying a contract's steps to a plan.

A step is a function (plan, caller) -> plan or refusal. The returned plan may differ from the given
plan. The first refusal is the decision, and the remaining steps are not called. Steps return
refusals instead of raising exceptions, so `decide` never raises.
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
    """Result of `decide`: the plan after the last successful step, and the refusal, if any."""

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
    """Return a step that always refuses. A contract uses the step for a request that it
    cannot fulfil, at the point in the sequence where that is decided."""

    def step(plan: Plan, caller: Caller) -> AnyRefusal:
        del plan, caller
        return refusal

    return step
