"""The structured data of a reply of the `nacre` contract, and the facts about a run that both the
data and the text of a reply need."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from nacre.contracts.nacre.shown_output import ShownOutput
from nacre.model.outcome import Capture, Ending, Survivor, ending_signal, ending_state, exit_status
from nacre.model.requests import Activity, Excerpt, RunStatus, WaitsForInput
from nacre.model.signals import signal_name
from nacre.model.wait_conditions import (
    AllMet,
    ConditionMet,
    FileExists,
    FileFound,
    HttpAnswered,
    HttpAnswers,
    LineMatched,
    OutputIdle,
    OutputMatches,
    OutputStopped,
    PortOpen,
    PortOpened,
)
from nacre.text.clean import as_displayed, decode, drop_partial_end, strip_escapes

if TYPE_CHECKING:
    from nacre.prepare.pipeline_stages import FailedStage

_PROMPT: Final = 2000  # maximum number of characters of a program's prompt in a reply


def build_details(job: RunStatus, part: ShownOutput, hints: Sequence[str]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "state": state_name(job),
        "exit_code": exit_status(job.ending),
        "signal": _signal_name(job.ending),
        "seconds": round(job.seconds, 3),
        "run": job.run,
        "cwd": job.cwd,
        "output": {
            "bytes": job.total.size,
            "lines": job.total.lines,
            "shown": [list(each) for each in part.shown],
            "cursor": next_cursor(job),
            "cut": part.cut,
        },
        "left_running": [_process_details(each) for each in job.processes.left_running],
        "hints": list(hints),
    }
    if job.waits_for_input:
        details["prompt"] = find_prompt(job)
    if job.met is not None:
        details["until"] = _condition_details(job.met)
    if job.queued:
        details["queued"] = {"behind": job.queued_behind or None}
    if job.activity is not None:
        details["activity"] = _activity_details(job.activity)
    if failed := list_failed_stages(job):
        details["failed_stages"] = [each._asdict() for each in failed]
    if job.processes.terminated:
        details["ended"] = [_process_details(each) for each in job.processes.terminated]
    return details


def state_name(job: RunStatus) -> str:
    return "waiting_input" if job.waits_for_input else ending_state(job.ending)


def shown_capture(job: RunStatus) -> Capture:
    """Return the excerpt of the output that a reply shows, or an empty capture if the reply shows
    the matches of a search."""
    return job.output.capture if isinstance(job.output, Excerpt) else Capture()


def next_cursor(job: RunStatus) -> int:
    """Return the byte of the output at which a later `job read` continues: the byte after the shown
    excerpt, or the end of the output if the reply shows the matches of a search."""
    if not isinstance(job.output, Excerpt):
        return job.total.size
    capture = job.output.capture
    end = (capture.tail or capture.head)[-4:]
    # The rest of a character that the run has not written completely belongs to the next read.
    partial = len(end) - len(drop_partial_end(end)) if job.ending is None else 0
    return job.output.byte + capture.size - partial


def find_prompt(job: RunStatus) -> str:
    """Return the program's prompt: the last line of the output, which does not end in a newline, or
    else the prompt of the `read -p` at which the script waits."""
    output, event = shown_capture(job), job.event
    if isinstance(event, WaitsForInput) and event.by_shell and not output.unterminated:
        from nacre.bash.read_prompts import (
            find_read_prompt,
            is_single_command,
        )  # lazy import: few scripts use `read`

        script = job.command.encode("utf-8", "surrogateescape")
        if event.script_file is None:
            return decode(find_read_prompt(script, event.lines))
        # Another command of the script may have read some of the lines.
        lines = event.lines if is_single_command(script) else None
        return decode(find_read_prompt(event.script_file, lines))
    data = output.tail or output.head
    return as_displayed(strip_escapes(decode(data[-4 * _PROMPT :]))).rpartition("\n")[2][-_PROMPT:]


def list_failed_stages(job: RunStatus) -> "list[FailedStage]":
    if not job.pipelines:
        return []
    from nacre.prepare.pipeline_stages import find_failed_stages  # lazy import: few pipelines fail

    return find_failed_stages(job.command.encode("utf-8", "surrogateescape"), job.pipelines)


def _signal_name(ending: Ending | None) -> str | None:
    signal = ending_signal(ending)
    return None if signal is None else signal_name(signal)


def _process_details(survivor: Survivor) -> dict[str, Any]:
    return {"pid": survivor.pid, "command": survivor.command, "ports": list(survivor.ports)}


def _condition_details(met: ConditionMet) -> dict[str, Any]:
    match met:
        case LineMatched(condition=OutputMatches(pattern), line=line, text=text):
            return {"output": pattern, "line": line, "text": text}
        case PortOpened(condition=PortOpen(port), pid=pid):
            return {"port": port, "pid": pid}
        case HttpAnswered(condition=HttpAnswers(url), status=status, foreign_pid=foreign):
            details = {"http": url, "status": status}
            return details if foreign is None else {**details, "foreign_pid": foreign}
        case FileFound(condition=FileExists(path)):
            return {"file": decode(path)}
        case OutputStopped(condition=OutputIdle(seconds)):
            return {"idle": seconds}
        case AllMet(met=each_met):
            return {"all": [_condition_details(each) for each in each_met]}


def _activity_details(activity: Activity) -> dict[str, Any]:
    idle = activity.idle_seconds
    return {
        "pid": activity.pid,
        "processes": activity.processes,
        "cpu_seconds": round(activity.cpu_seconds, 2),
        "idle_seconds": None if idle is None else round(idle, 1),
        "ports": list(activity.ports),
        "stopped": activity.stopped,
    }
