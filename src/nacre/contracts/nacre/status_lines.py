"""Status lines: the lines in brackets that a reply of the `nacre` contract adds to the output.

A status line says only what a reader needs: a plain success (exit code 0) has no status line.
"""

from collections.abc import Iterator
from typing import Final

from nacre.contracts.nacre.reply_context import HAS_TERMINALS
from nacre.contracts.nacre.reply_details import (
    find_prompt,
    list_failed_stages,
    next_cursor,
    shown_capture,
)
from nacre.contracts.nacre.shown_output import ShownOutput
from nacre.contracts.phrases import describe_process, process_texts, shorten_command
from nacre.model.outcome import (
    Cancelled,
    Ending,
    Exited,
    Killed,
    Lost,
    NotStarted,
    Survivor,
    TimedOut,
)
from nacre.model.requests import Activity, AlreadyEnded, RunStatus
from nacre.model.signals import signal_name
from nacre.model.wait_conditions import (
    NO_CONDITIONS,
    AllMet,
    ConditionMet,
    Conditions,
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
from nacre.text.clean import decode

_MAX_STAGES: Final = 10  # maximum number of failed stages of pipelines that a reply lists
# Seconds up to which a run without output counts as just started.
_JUST_STARTED: Final = 0.2
_NO_OUTPUT: Final = (
    "no output yet (programs may buffer when writing to a pipe; {} avoids that)".format(
        "pty: true" if HAS_TERMINALS else "stdbuf -oL"
    )
)


def state_lines(
    job: RunStatus, part: ShownOutput, until: Conditions = NO_CONDITIONS, *, always: bool = False
) -> Iterator[str]:
    """Generate the status lines in brackets about a run; a plain success (exit code 0), the usual
    case, has none."""
    unmet = bool(until) and job.met is None
    how = ending_text(job.ending)
    if job.ending is None:
        yield f"[{_running_text(job, part, unmet=unmet)}]"
        return
    ended = job.met is not None and until.end_run
    if job.met is not None:
        # A run that exits may handle the signal, or may have been about to exit.
        has_ended = (
            " has ended the run" if isinstance(job.ending, Killed) else ": the run has ended"
        )
        then = f'; then: "end"{has_ended} ({how})' if ended else ""
        yield f"[{_condition_text(job.met, part)}{then}]"
    if isinstance(job.event, AlreadyEnded):
        yield f"[{job.run} had already ended: {how}]"
    elif not ended and (job.ending != Exited(0) or (always and not job.processes.terminated)):
        yield f"[{how}]"
    if unmet and job.processes.left_running:
        yield "[until is not met yet]"
    elif unmet:
        yield "[until not met: the command ended first]"
    failed = list_failed_stages(job)
    for each in failed[:_MAX_STAGES]:
        yield f"[pipeline: stage {each.stage} ({each.program}) exited with {each.status}]"
    if len(failed) > _MAX_STAGES:
        yield f"[pipeline: and {len(failed) - _MAX_STAGES} more stages]"


def _running_text(job: RunStatus, part: ShownOutput, *, unmet: bool) -> str:
    if job.queued:
        return f"{job.run} is {queue_text(job)}"
    if job.waits_for_input:
        prompt = find_prompt(job)
        # The prompt of a program is the last line of the shown output. bash prints the prompt of
        # `read -p` only on a terminal, so that prompt is known from the script alone.
        unprinted = prompt and not shown_capture(job).unterminated
        return f"{job.run} waits for input{f'; it asks: {prompt}' if unprinted else ''}"
    seen = "" if job.met is None else f": {_condition_text(job.met, part)}"
    facts = [
        *([f"cursor {next_cursor(job)}"] if job.total.size and (part.shown or job.met) else []),
        *(["until is not met yet"] if unmet else []),
        *([activity_text(job.activity)] if job.activity and not _is_known(job) else []),
        *([_NO_OUTPUT] if _lacks_output(job) else []),
    ]
    how = "stopped (job signal CONT continues it)" if _is_stopped(job) else "running"
    return "; ".join([f"{job.run} is {how}{seen}", *facts])


def _is_stopped(job: RunStatus) -> bool:
    return job.activity is not None and job.activity.stopped


def _lacks_output(job: RunStatus) -> bool:
    if job.total.size or job.met is not None or _is_stopped(job):
        return False
    return job.seconds >= _JUST_STARTED


def _is_known(job: RunStatus) -> bool:
    """Return whether the condition that was met already names the run's only process."""
    activity, met = job.activity, job.met
    if activity is None or activity.processes > 1:
        return False
    return isinstance(met, PortOpened) and met.pid == activity.pid


def queue_text(job: RunStatus) -> str:
    if job.queued_behind:
        return f"queued: {job.queued_behind} has the session"
    return "queued: other commands run first"


def activity_text(activity: Activity) -> str:
    """Return what a run's processes do: pid, number of processes, TCP ports, CPU time, time since
    the last output."""
    idle = activity.idle_seconds
    return ", ".join(
        [
            f"pid {activity.pid}",
            *([f"{activity.processes} processes"] if activity.processes > 1 else []),
            *(f"port {port}" for port in activity.ports),
            *([f"{activity.cpu_seconds:.1f} s CPU"] if activity.cpu_seconds >= 0.05 else []),
            *([f"last output {idle:.0f} s ago"] if idle is not None and idle >= 1 else []),
        ]
    )


def _condition_text(met: ConditionMet, part: ShownOutput) -> str:
    match met:
        case LineMatched(condition=OutputMatches(pattern), line=line, text=matched):
            shown = any(first <= line <= last for first, last in part.shown)
            text = "" if shown else f": {shorten_command(matched)}"
            return f"line {line} matches {pattern}{text}"
        case PortOpened(condition=PortOpen(port), pid=pid):
            return f"port {port} is open (pid {pid})"
        case HttpAnswered(condition=HttpAnswers(url), status=status, foreign_pid=foreign):
            other = (
                ""
                if foreign is None
                else f", but the answer is from process {foreign}, which is not part of this run"
            )
            return f"{url} answers (status {status}){other}"
        case FileFound(condition=FileExists(path)):
            return f"{decode(path)} exists"
        case OutputStopped(condition=OutputIdle(seconds)):
            return f"no output for {seconds:g} s"
        case AllMet(met=each_met):
            return "; ".join(_condition_text(each, part) for each in each_met)


def ending_text(ending: Ending | None) -> str:
    match ending:
        case Exited(code):
            return f"exit code {code}"
        case Killed(number):
            return f"killed by {signal_name(number)}"
        case TimedOut(after=after):
            return f"timed out after {after:g} s"
        case Cancelled():
            return "cancelled"
        case Lost():
            return "lost: the process that ran it was killed, and its exit status is unknown"
        case NotStarted(why=why):
            return f"not started: {why}"
        case None:
            return "running"


def artifact_lines(job: RunStatus) -> Iterator[str]:
    saved = job.total.saved
    if saved is not None and saved.problem is not None:
        yield f"[{saved.problem}]"


def process_lines(job: RunStatus) -> Iterator[str]:
    for each in process_texts("left running", job.processes.left_running, describe_with_ports):
        yield f"[{each}]"
    if job.processes.left_running:
        alone = len(job.processes.left_running) == 1
        belongs, it = ("it belongs", "it") if alone else ("they belong", "them")
        yield f"[{belongs} to {job.run}; job signal {job.run} ends {it}]"
    for each in process_texts("ended", job.processes.terminated, describe_with_ports):
        yield f"[{each}]"


def describe_with_ports(survivor: Survivor) -> str:
    listens = "".join(f", port {port}" for port in survivor.ports)
    return f"{describe_process(survivor)}{listens}"
