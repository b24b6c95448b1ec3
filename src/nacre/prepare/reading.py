"""The script of a plan, read. Steps share one reading: it is remembered."""

from nacre.caller import Caller
from nacre.plan import Plan
from nacre.script.commands import Reading
from nacre.script.read import read


def reading(plan: Plan, caller: Caller) -> Reading:
    return read(plan.command.script, home=caller.home, cwd=plan.command.cwd)
