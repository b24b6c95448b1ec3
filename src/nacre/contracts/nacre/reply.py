"""Replies of the `nacre` contract, each as text for the model and as data.

The text of a reply is the output of the run, followed by lines in brackets about the run's state,
leftover processes and hints. The reply to a plain success (exit code 0, nothing else to report) has
no line in brackets. The data of every reply has the same fields, plus fields for special cases such
as a prompt.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from nacre.contracts.contract import Reply
from nacre.contracts.nacre.reply_context import HAS_TERMINALS, ReplyContext
from nacre.contracts.nacre.shown_output import ShownOutput, show_output
from nacre.contracts.phrases import (
    describe_process,
    moved_notes,
    process_texts,
    session_notes,
    shorten_command,
)
from nacre.model.caller import ReadPosition
from nacre.model.findings import AnyFinding, NeedsTerminal, ToolSuggested, TrailerSkipped
from nacre.model.outcome import (
    Cancelled,
    Capture,
    Ending,
    Exited,
    Killed,
    Lost,
    NotStarted,
    Outcome,
    Survivor,
    TimedOut,
    ending_signal,
    ending_state,
    exit_status,
)
from nacre.model.refusals import (
    AnyRefusal,
    BadArguments,
    CalledOff,
    Dangerous,
    Intercepted,
    NotWaited,
)
from nacre.model.requests import (
    Activity,
    AlreadyEnded,
    Excerpt,
    Running,
    RunProcesses,
    RunStatus,
    WaitsForInput,
)
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
from nacre.prepare.environment import withheld_secrets
from nacre.text.clean import as_displayed, decode, drop_partial_end, strip_escapes

if TYPE_CHECKING:
    from nacre.prepare.pipeline_stages import FailedStage

_DETACHED_IN_SESSION: Final = (
    "other calls can use the session meanwhile; the state of this command is saved when it ends, "
    "unless another call has used the session by then"
)
# Seconds up to which a run without output counts as just started.
_JUST_STARTED: Final = 0.2
_NO_OUTPUT: Final = (
    "no output yet (programs may buffer when writing to a pipe; {} avoids that)".format(
        "pty: true" if HAS_TERMINALS else "stdbuf -oL"
    )
)
_LOOKED_AT: Final = 4096  # number of bytes at the end of the output in which git names an editor
_PROMPT: Final = 2000  # maximum number of characters of a program's prompt in a reply
# Pattern for scripts that may get a hint even if they succeed: scripts with a change of the shell's
# state (`cd`, `export`, `source`) or a here-document.
_MAY_NEED_HINT: Final = re.compile(
    rb"\b(?:cd|chdir|pushd|popd|export|source)\b|(?:^|[;&\n])\s*\.\s|<<"
)


def build_reply(
    result: Outcome | Running, reply_context: ReplyContext, findings: Sequence[AnyFinding]
) -> Reply:
    """Build the reply to a call of the tool `bash`."""
    if isinstance(result, Outcome) and isinstance(result.ending, NotStarted):
        return build_refusal_reply(result.ending.why, run=result.run, cwd=reply_context.cwd)
    job = _build_status(result, reply_context)
    return build_run_reply(
        job,
        show_output(job, reply_context.max_bytes, reply_context.read_output),
        state="; ".join([*moved_notes(findings), *_session_lines(result, reply_context)]) or None,
        hints=_find_hints(job, reply_context, findings),
        clamped=reply_context.wait_clamped_to,
        until=reply_context.until,
    )


def _session_lines(result: Outcome | Running, reply_context: ReplyContext) -> list[str]:
    if isinstance(result, Outcome):
        note, earlier = session_notes(result, reply_context.script), result.session_taken_from
        taken = f"the session keeps the state of this call; the state of {earlier} is not saved"
        return [*([] if note is None else [note]), *([taken] if earlier else [])]
    if reply_context.session and not result.queued:
        return [_DETACHED_IN_SESSION]
    return []


def _build_status(result: Outcome | Running, reply_context: ReplyContext) -> RunStatus:
    status = RunStatus(
        run=result.run,
        command=decode(reply_context.script),
        cwd=decode(reply_context.cwd),
        seconds=result.seconds,
        ending=None,
        output=Excerpt(capture=result.output),
        total=result.output,
        event=result.met,
        open_stdin=reply_context.open_stdin,
    )
    if isinstance(result, Running):
        return replace(
            status,
            event=WaitsForInput(lines=result.input_lines, by_shell=result.shell_reads)
            if result.waits_for_input
            else result.met,
            queued=result.queued,
            queued_behind=result.queued_behind,
            activity=result.activity or _first_activity(result),
        )
    return replace(
        status,
        ending=result.ending,
        processes=RunProcesses(left_running=result.left_running, terminated=result.terminated),
        out_of_memory=result.out_of_memory,
        pipelines=result.pipelines,
    )


def _first_activity(running: Running) -> Activity | None:
    """Return the activity of a run that has just started: only the pid of its shell is known."""
    return Activity(pid=running.pid, processes=1, cpu_seconds=0.0) if running.pid else None


def _find_hints(
    job: RunStatus, reply_context: ReplyContext, findings: Sequence[AnyFinding]
) -> list[str]:
    found = find_hints(
        job,
        reply_context.script,
        reply_context.cwd,
        reply_context.path,
        reply_context.find_run,
        lasts=bool(reply_context.session),
        withheld=withheld_secrets(findings),
        literal_env=reply_context.literal_env,
    )
    for finding in findings:
        match finding:
            case ToolSuggested(message=message):
                found.append(message)
            case NeedsTerminal(words=words, why=why, instead=instead):
                if not found and _fits_failure(job, words):
                    found.append(f"{words}: {why}; {instead}")
            case TrailerSkipped(why=why):
                found.append(f"a commit got no trailer: {why}")
    return found


def _fits_failure(job: RunStatus, words: str) -> bool:
    """Return whether a command that needs a terminal may have failed for lack of it. A command that
    succeeded needed none, and git says so when it cannot open an editor."""
    if job.ending is None or not words.startswith("git "):
        return job.ending != Exited(0)
    output = shown_capture(job)
    return job.ending != Exited(0) and b"editor" in (output.tail or output.head)[-_LOOKED_AT:]


def find_hints(
    job: RunStatus,
    script: bytes,
    cwd: bytes,
    path: bytes,
    run_of: Callable[[int], str | None],
    *,
    lasts: bool = False,
    withheld: tuple[str, ...] = (),
    literal_env: tuple[str, ...] = (),
) -> list[str]:
    """Return hints for the model about an ended run. `lasts` is True if the command ran in a
    session, which keeps changes of the shell's state for later calls. `withheld` are the names of
    variables that the command did not get because they look like secrets. `literal_env` are the
    assignments of the call whose values look like references to other variables."""
    if job.ending is None or (job.ending == Exited(0) and not _MAY_NEED_HINT.search(script)):
        return []
    from nacre.hints.hints import RunFacts, find_hints  # lazy import: most replies have no hints

    shown = shown_capture(job)
    facts = RunFacts(
        script=script,
        cwd=cwd,
        path=path,
        ending=job.ending,
        output=shown.tail or shown.head,
        unterminated=shown.unterminated,
        open_stdin=job.open_stdin,
        out_of_memory=job.out_of_memory,
        find_run=run_of,
        has_session=lasts,
        withheld=withheld,
        literal_env=literal_env,
    )
    return list(find_hints(facts))


def build_run_reply(
    job: RunStatus,
    part: ShownOutput,
    *,
    state: str | None = None,
    hints: Sequence[str] = (),
    clamped: float | None = None,
    until: Conditions = NO_CONDITIONS,
    always: bool = False,
    since_last: bool = False,
) -> Reply:
    """Build the reply about one run: the shown output, then status lines in brackets.

    `state` is the text of a note about the run's session, or None. `clamped` is the maximum wait in
    seconds that replaced a longer requested wait, or None. `until` has the conditions for
    which the call waited. If `always` is True, the reply has a
    status line even for exit code 0. `since_last` means that the reply shows only the output since
    the last reply about the run.

    If a reader could mistake the output for lines of nacre, the reply of a success ends in the
    explicit line `[exit code 0]`."""
    body = part.text
    nothing_new = since_last and job.total.size > 0 and not shown_capture(job).size
    always = always or nothing_new
    lines = [
        *([f"[nothing new since line {job.total.lines:,}]"] if nothing_new else []),
        *state_lines(job, part, until, always=always),
        *_artifact_lines(job),
        *_leftover_lines(job),
        *([f"[{state}]"] if state else []),
        *([f"[this front waits at most {clamped:g} s]"] if clamped is not None else []),
        *(f"[hint: {each}]" for each in hints),
    ]
    if job.ending == Exited(0) and part.looks_like_status and not always:
        lines.append(f"[{_ending_text(job.ending)}]")
    if lines and body and not body.endswith("\n"):
        body += "\n"
    return Reply(
        text=body + "\n".join(lines) or "(no output)",
        is_error=isinstance(job.ending, NotStarted | Lost),
        details=build_details(job, part, hints),
        run=job.run,
        read_to={job.run: ReadPosition(next_cursor(job), job.ending is not None)},
    )


def shown_capture(job: RunStatus) -> Capture:
    """Return the excerpt of the output that a reply shows, or an empty capture if the reply shows
    the matches of a search."""
    return job.output.capture if isinstance(job.output, Excerpt) else Capture()


def state_lines(
    job: RunStatus, part: ShownOutput, until: Conditions = NO_CONDITIONS, *, always: bool = False
) -> Iterator[str]:
    """Generate the status lines in brackets about a run; a plain success (exit code 0), the usual
    case, has none."""
    unmet = bool(until) and job.met is None
    how = _ending_text(job.ending)
    if job.ending is None:
        yield f"[{_running_text(job, part, unmet=unmet)}]"
        return
    ended = job.met is not None and until.end_run and isinstance(job.ending, Killed)
    if job.met is not None:
        then = f'; then: "end" has ended the run ({how})' if ended else ""
        yield f"[{_condition_text(job.met, part)}{then}]"
    if isinstance(job.event, AlreadyEnded):
        yield f"[{job.run} had already ended: {how}]"
    elif not ended and (job.ending != Exited(0) or (always and not job.processes.terminated)):
        yield f"[{how}]"
    if unmet:
        yield "[until not met: the command ended first]"
    yield from (
        f"[pipeline: stage {each.stage} ({each.program}) exited with {each.status}]"
        for each in _failed_stages(job)
    )


def _failed_stages(job: RunStatus) -> "list[FailedStage]":
    if not job.pipelines:
        return []
    from nacre.prepare.pipeline_stages import find_failed_stages  # lazy import: few pipelines fail

    return find_failed_stages(job.command.encode("utf-8", "surrogateescape"), job.pipelines)


def _ending_text(ending: Ending | None) -> str:
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
        *(["until is not true yet"] if unmet else []),
        *([activity_text(job.activity)] if job.activity and not _is_known(job) else []),
        *([_NO_OUTPUT] if _lacks_output(job) else []),
    ]
    return "; ".join([f"{job.run} is running{seen}", *facts])


def _lacks_output(job: RunStatus) -> bool:
    return not job.total.size and job.met is None and job.seconds >= _JUST_STARTED


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
    """Return what a run's processes do: pid, number of processes, CPU time, time since the last
    output."""
    idle = activity.idle_seconds
    return ", ".join(
        [
            f"pid {activity.pid}",
            *([f"{activity.processes} processes"] if activity.processes > 1 else []),
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
            other = "" if foreign is None else f", but from process {foreign}, not of this run"
            return f"{url} answers (status {status}){other}"
        case FileFound(condition=FileExists(path)):
            return f"{decode(path)} exists"
        case OutputStopped(condition=OutputIdle(seconds)):
            return f"no output for {seconds:g} s"
        case AllMet(met=each_met):
            return "; ".join(_condition_text(each, part) for each in each_met)


def _artifact_lines(job: RunStatus) -> Iterator[str]:
    saved = job.total.saved
    if saved is not None and saved.problem is not None:
        yield f"[{saved.problem}]"


def _leftover_lines(job: RunStatus) -> Iterator[str]:
    for each in process_texts("left running", job.processes.left_running, describe_with_ports):
        yield f"[{each}]"
    if job.processes.left_running:
        it, its = ("it", "its") if len(job.processes.left_running) == 1 else ("them", "their")
        yield f"[{job.run} keeps {it} and {its} output; job signal {job.run} ends {it}]"
    for each in process_texts("ended", job.processes.terminated, describe_with_ports):
        yield f"[{each}]"


def describe_with_ports(survivor: Survivor) -> str:
    listens = "".join(f", port {port}" for port in survivor.ports)
    return f"{describe_process(survivor)}{listens}"


# Functions that build the structured data of a reply.


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
    if failed := _failed_stages(job):
        details["failed_stages"] = [each._asdict() for each in failed]
    if job.processes.terminated:
        details["ended"] = [_process_details(each) for each in job.processes.terminated]
    return details


def state_name(job: RunStatus) -> str:
    return "waiting_input" if job.waits_for_input else ending_state(job.ending)


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
            return details if foreign is None else {**details, "stranger": foreign}
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
    }


def find_prompt(job: RunStatus) -> str:
    """Return the program's prompt: the last line of the output, which does not end in a newline, or
    else the prompt of the `read -p` at which the script waits."""
    output, event = shown_capture(job), job.event
    if isinstance(event, WaitsForInput) and event.by_shell and not output.unterminated:
        from nacre.bash.read_prompts import find_read_prompt  # lazy import: few scripts use `read`

        script = job.command.encode("utf-8", "surrogateescape")
        return decode(find_read_prompt(script, event.lines))
    data = output.tail or output.head
    return as_displayed(strip_escapes(decode(data[-4 * _PROMPT :]))).rpartition("\n")[2][-_PROMPT:]


# Functions that build the reply to a refused call.


def build_refusal_reply(refusal: AnyRefusal, *, run: str | None = None, cwd: bytes = b"") -> Reply:
    rule, why, instead = _refusal_details(refusal)
    details: dict[str, Any] = {
        "state": "cancelled" if isinstance(refusal, CalledOff | NotWaited) else "not_started",
        "exit_code": None,
        "signal": None,
        "seconds": 0.0,
        "run": run if run and run.startswith("r") else None,
        "cwd": decode(cwd) or None,
        "output": {"bytes": 0, "lines": 0, "shown": [], "cursor": 0, "cut": False},
        "left_running": [],
        "hints": [],
        "refusal": {"id": refusal.public_id, "rule": rule, "why": why, "instead": instead},
    }
    problem = str(refusal)
    text = f"[{problem}]" if problem.startswith("refused") else f"[refused: {problem}]"
    return Reply(text=text, is_error=True, details=details)


def _refusal_details(refusal: AnyRefusal) -> tuple[str | None, str, str | None]:
    """Return the rule that refused the call (or None), the reason, and what the model can do
    instead (or None)."""
    match refusal:
        case Dangerous(rule=rule, why=why, instead=instead):
            return rule, why, instead
        case Intercepted(rule=rule, message=message):
            return rule, message, None
        case BadArguments():
            return None, str(refusal), None
    why, semicolon, instead = str(refusal).partition("; ")
    return None, why, instead if semicolon else None
