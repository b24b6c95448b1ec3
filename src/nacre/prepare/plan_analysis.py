"""The script of a plan, read. Steps share one reading: it is remembered."""

from nacre.bash.analyze import analyze
from nacre.bash.commands import Analysis
from nacre.model.caller import Caller
from nacre.model.plan import Plan


def analyze_plan(plan: Plan, caller: Caller) -> Analysis:
    return analyze(plan.command.script, home=command_home(plan, caller), cwd=plan.command.cwd)


def command_home(plan: Plan, caller: Caller) -> bytes | None:
    """The home that the command will have."""
    return plan.command.call_env.get(b"HOME") or caller.home
