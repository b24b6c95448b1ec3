"""The script of a plan, read. Steps share one reading: it is remembered."""

from nacre.caller import Caller
from nacre.plan import Plan
from nacre.script.commands import Reading
from nacre.script.read import read


def reading(plan: Plan, caller: Caller) -> Reading:
    return read(plan.command.script, home=home_of(plan, caller), cwd=plan.command.cwd)


def home_of(plan: Plan, caller: Caller) -> bytes | None:
    """The home that the command will have."""
    return plan.command.extra.get(b"HOME") or caller.home
