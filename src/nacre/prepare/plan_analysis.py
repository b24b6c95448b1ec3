"""Analysis of the bash script in a plan. `analyze` caches its results, so that all preparation
steps share one parse of the script."""

from nacre.bash.analyze import analyze
from nacre.bash.commands import Analysis
from nacre.model.caller import Caller
from nacre.model.plan import Plan


def analyze_plan(plan: Plan, caller: Caller) -> Analysis:
    return analyze(plan.command.script, home=command_home(plan, caller), cwd=plan.command.cwd)


def command_home(plan: Plan, caller: Caller) -> bytes | None:
    """Return the home directory of a command: HOME from the `env` of the tool call, else the
    caller's home directory."""
    return plan.command.call_env.get(b"HOME") or caller.home
