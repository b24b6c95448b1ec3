"""Adding to what a plan says about itself."""

import msgspec

from nacre.findings import AnyFinding
from nacre.plan import Plan


def noted(plan: Plan, *findings: AnyFinding) -> Plan:
    return msgspec.structs.replace(plan, findings=(*plan.findings, *findings))
