"""The preparation step `report_pipeline`: bash reports how each stage of a pipeline has exited.

The exit code of `pytest | tail` is the exit code of `tail`, so a failure of `pytest` is easily
overlooked. For a script whose last command is a pipeline, the plan asks the engine for the exit
statuses of all stages. The engine appends bash code to the script, which runs after the last
command of the script; see `shell_state.pipeline_report`. A script that could notice or break the
appended code is left alone.
"""

import re
from typing import Final

import msgspec

from nacre.model.caller import Caller
from nacre.model.plan import Plan
from nacre.text.clean import decode

# A here-document could take the appended code as its own text. An EXIT trap, `set -v`, programs
# that list processes, and some variables could show the appended code. Limits, and functions or
# aliases in place of builtins, could break it.
_COULD_NOTICE: Final = re.compile(
    rb"<<|\b(?:trap|verbose|ulimit|enable|builtin|alias|ps|pgrep|pkill|top|htop|cmdline)\b"
    rb"|\bset(?:[ \t]{1,9}[-+]\w{1,9}){0,6}[ \t]{1,9}-\w{0,9}v|BASH_EXECUTION_STRING|BASH_COMMAND"
)
_SIGPIPE: Final = 128 + 13  # exit status of a stage whose reader has ended, as in `yes | head`
# Programs whose exit status 1 is an answer, not a failure.
_ANSWERS: Final = frozenset(
    ("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "diff", "cmp", "test", "[", "pgrep")
)


def report_pipeline(plan: Plan, caller: Caller) -> Plan:
    """Ask for the exit statuses of the stages of the script's last pipeline."""
    del caller
    script = plan.command.script
    if b"|" not in script or script.rstrip().endswith(b"\\") or _COULD_NOTICE.search(script):
        return plan
    from nacre.bash.last_pipeline import find_last_pipeline  # lazy: few scripts need it

    stages = len(find_last_pipeline(script))
    return msgspec.structs.replace(plan, stages=stages) if stages > 1 else plan


def failed_stages(script: bytes, statuses: tuple[int, ...]) -> list[tuple[int, str, int]]:
    """Return the stages before the last one that failed: number from 1, name of the program, exit
    status. `statuses` are the exit statuses of all stages of the script's last pipeline."""
    from nacre.bash.last_pipeline import find_last_pipeline

    names = [decode(each) for each in find_last_pipeline(script)]
    if len(names) != len(statuses):
        return []
    return [
        (number, name, status)
        for number, (name, status) in enumerate(zip(names[:-1], statuses, strict=False), 1)
        if status not in (0, _SIGPIPE) and not (status == 1 and name in _ANSWERS)
    ]
