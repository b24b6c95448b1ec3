"""The preparation step `request_pipeline_reports`: bash reports the exit statuses of pipelines.

The exit code of `pytest | tail` is the exit code of `tail`, so a failure of `pytest` is easily
overlooked. The plan therefore names the pipelines of a script, and the engine inserts code
into the script that reports the exit statuses of all stages; see `shell_state.pipeline_report`. A
script that could notice or break the inserted code is left alone.
"""

from typing import Final, NamedTuple

import msgspec

from nacre.model.caller import Caller
from nacre.model.plan import Plan, ReportedPipeline
from nacre.shell_state.pipeline_report import could_notice
from nacre.text.clean import decode

# Variables of the environment by which a script could notice the inserted code.
_TELLING_VARIABLES: Final = frozenset((b"BASH_ENV", b"SHELLOPTS", b"PS4", b"BASH_XTRACEFD"))
_SIGPIPE: Final = 128 + 13  # exit status of a stage whose reader has ended, as in `yes | head`
# Programs whose exit status 1 is an answer, not a failure.
_ANSWERS: Final = frozenset(
    ("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "diff", "cmp", "test", "[", "[[", "((")
)


def request_pipeline_reports(plan: Plan, caller: Caller) -> Plan:
    """Ask for the exit statuses of the stages of the script's pipelines."""
    del caller
    script = plan.command.script
    if b"|" not in script or could_notice(script):
        return plan
    if not _TELLING_VARIABLES.isdisjoint({*(plan.command.env or ()), *plan.command.call_env}):
        return plan
    # Lazy import: few scripts have a pipeline.
    from nacre.bash.script_pipelines import find_pipelines

    found = tuple(
        ReportedPipeline(start=each.start, end=each.end, stages=len(each.programs))
        for each in find_pipelines(script)
    )
    return msgspec.structs.replace(plan, pipelines=found) if found else plan


class FailedStage(NamedTuple):
    """Stage of a pipeline that failed without effect on the exit code of the pipeline."""

    stage: int  # number of the stage, from 1
    program: str
    status: int


def find_failed_stages(script: bytes, statuses: tuple[tuple[int, ...], ...]) -> list[FailedStage]:
    """Return the stages that failed, except the last stage of each pipeline, whose exit status is
    that of the pipeline. `statuses` has the exit statuses of each pipeline of the script."""
    from nacre.bash.script_pipelines import find_pipelines

    pipelines = find_pipelines(script)
    if len(pipelines) != len(statuses):
        return []
    stages = (
        FailedStage(number, decode(program), status)
        for pipeline, exits in zip(pipelines, statuses, strict=True)
        for number, (program, status) in enumerate(
            zip(pipeline.programs[:-1], exits, strict=False), 1
        )
    )
    return [each for each in stages if _has_failed(each)]


def _has_failed(stage: FailedStage) -> bool:
    if stage.status in (0, _SIGPIPE):
        return False
    return stage.status != 1 or stage.program not in _ANSWERS
