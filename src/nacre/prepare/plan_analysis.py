"""Analysis of a plan's script. `analyze` caches its results, so steps share one parse."""

from nacre.bash.analyze import analyze
from nacre.bash.commands import Analysis
from nacre.model.caller import Caller
from nacre.model.plan import Plan


def analyze_plan(plan: Plan, caller: Caller) -> Analysis:
    return analyze(plan.command.script, home=command_home(plan, caller), cwd=plan.command.cwd)


def command_home(plan: Plan, caller: Caller) -> bytes | None:
    """Return the command's home directory: the call's HOME variable, else the caller's home."""
    return plan.command.call_env.get(b"HOME") or caller.home
