"""Replies of the `nacre` contract, each as text for the model and as data.

The text of a reply is the output of the run, followed by lines in brackets about the run's state,
leftover processes and hints. The reply to a plain success (exit code 0, nothing else to report) has
no line in brackets. The data of every reply has the same fields, plus fields for special cases such
as a prompt.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from nacre.contracts.contract import Reply
from nacre.contracts.nacre.reply_context import ReplyContext
from nacre.contracts.phrases import (
    describe_process,
    moved_notes,
    process_texts,
    session_notes,
    shorten_command,
)
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
    AlreadyEnded,
    ConditionMet,
    Excerpt,
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
    Running,
    RunProcesses,
    RunStatus,
    WaitsForInput,
)
from nacre.model.signals import signal_name
from nacre.text.clean import as_displayed, decode, strip_escapes
from nacre.text.render import Rendered, render

_PROMPT: Final = 2000  # maximum number of characters of a program's prompt in a reply
# Number of omitted output bytes above which a reply also suggests a search with `grep`.
_LONG_OUTPUT: Final = 1024 * 1024
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
        render_output(job, reply_context.max_bytes),
        state="; ".join([*moved_notes(findings), *_session_lines(result, reply_context)]) or None,
        hints=_find_hints(job, reply_context, findings),
        clamped=reply_context.wait_clamped_to,
        unmet=reply_context.until and job.met is None,
    )


def _session_lines(result: Outcome | Running, reply_context: ReplyContext) -> list[str]:
    if isinstance(result, Outcome):
        note = session_notes(result)
        return [] if note is None else [note]
    if reply_context.session:
        return ["the session goes on without it: what it does to its shell is not remembered"]
    return []


def _build_status(result: Outcome | Running, reply_context: ReplyContext) -> RunStatus:
    ending, processes, event, out_of_memory = None, RunProcesses(), None, False
    if isinstance(result, Outcome):
        ending, out_of_memory = result.ending, result.out_of_memory
        processes = RunProcesses(left_running=result.left_running, terminated=result.terminated)
    else:
        event = WaitsForInput() if result.waits_for_input else result.met
    return RunStatus(
        run=result.run,
        command=decode(reply_context.script),
        cwd=decode(reply_context.cwd),
        seconds=result.seconds,
        ending=ending,
        output=Excerpt(capture=result.output),
        total=result.output,
        processes=processes,
        event=event,
        open_stdin=reply_context.open_stdin,
        out_of_memory=out_of_memory,
    )


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
    )
    for finding in findings:
        match finding:
            case ToolSuggested(message=message):
                found.append(message)
            case NeedsTerminal(words=words, why=why, instead=instead):
                found.append(f"{words}: {why}; {instead}")
            case TrailerSkipped(why=why):
                found.append(f"a commit got no trailer: {why}")
    return found


def find_hints(
    job: RunStatus,
    script: bytes,
    cwd: bytes,
    path: bytes,
    run_of: Callable[[int], str | None],
    *,
    lasts: bool = False,
) -> list[str]:
    """Return hints for the model about an ended run. `lasts` is True if the command ran in a
    session, which keeps changes of the shell's state for later calls."""
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
    )
    return list(find_hints(facts))


def build_run_reply(
    job: RunStatus,
    part: Rendered,
    *,
    state: str | None = None,
    hints: Sequence[str] = (),
    clamped: float | None = None,
    unmet: bool = False,
    always: bool = False,
) -> Reply:
    """Build the reply about one run: the shown output, then status lines in brackets.

    `state` is the text of a note about the run's session, or None. `clamped` is the maximum wait in
    seconds that replaced a longer requested wait, or None. `unmet` is True if the call waited with
    the argument `until` and none of its conditions was met. If `always` is True, the reply has a
    status line even for exit code 0."""
    body = _output_text(job, part)
    lines = [
        *state_lines(job, part, unmet=unmet, always=always),
        *_artifact_lines(job),
        *_leftover_lines(job),
        *([f"[{state}]"] if state else []),
        *([f"[this front waits at most {clamped:g} s]"] if clamped is not None else []),
        *(f"[hint: {each}]" for each in hints),
    ]
    if lines and body and not body.endswith("\n"):
        body += "\n"
    return Reply(
        text=body + "\n".join(lines) or "(no output)",
        is_error=isinstance(job.ending, NotStarted | Lost),
        details=build_details(job, part, hints),
        run=job.run,
    )


def render_output(job: RunStatus, max_bytes: int) -> Rendered:
    assert isinstance(job.output, Excerpt)
    return render(job.output.capture, max_bytes, first=job.output.line, start=job.output.byte)


def shown_capture(job: RunStatus) -> Capture:
    """Return the excerpt of the output that a reply shows, or an empty capture if the reply shows
    the matches of a search."""
    return job.output.capture if isinstance(job.output, Excerpt) else Capture()


def _output_text(job: RunStatus, part: Rendered) -> str:
    if part.omitted is None:
        return part.head
    left = part.omitted
    count = left.last - left.first + 1
    lines = f"{count:,} lines, " if count > 1 else ""
    size = f"{left.size:,} byte{'' if left.size == 1 else 's'}"
    where = f'"from": {left.first}, "to": {left.last}' if count > 1 else f'"since": {left.byte}'
    read = f'{{"action": "read", "run": "{job.run}", {where}}}'
    grep = " or grep" if left.size > _LONG_OUTPUT else ""
    # If a shortened reply is a few bytes below its byte limit, spaces fill these bytes; otherwise a
    # longer output could give a shorter reply.
    spare = " " * part.spare
    return f"{part.head}[{lines}{size} left out: job {read}{grep}]{spare}\n{part.tail}"


def state_lines(
    job: RunStatus, part: Rendered, *, unmet: bool = False, always: bool = False
) -> Iterator[str]:
    """Generate the status lines in brackets about a run; a plain success (exit code 0), the usual
    case, has none."""
    how = _ending_text(job.ending)
    if job.ending is None:
        yield f"[{_running_lines(job, part, unmet=unmet)}]"
    elif isinstance(job.event, AlreadyEnded):
        yield f"[{job.run} had already ended: {how}]"
    elif job.ending != Exited(0) or (always and not job.processes.terminated):
        yield f"[{how}]"


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


def _running_lines(job: RunStatus, part: Rendered, *, unmet: bool) -> str:
    if job.waits_for_input:
        return f"{job.run} waits for input"
    seen = "" if job.met is None else f": {_condition_text(job.met, part)}"
    cursor = f"; cursor {next_cursor(job)}" if job.total.size and (part.shown or job.met) else ""
    waited = "; until is not true yet" if unmet else ""
    return f"{job.run} is running{seen}{cursor}{waited}"


def _condition_text(met: ConditionMet, part: Rendered) -> str:
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


def build_details(job: RunStatus, part: Rendered, hints: Sequence[str]) -> dict[str, Any]:
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
        details["prompt"] = find_prompt(shown_capture(job))
    if job.met is not None:
        details["until"] = _condition_details(job.met)
    if job.processes.terminated:
        details["ended"] = [_process_details(each) for each in job.processes.terminated]
    return details


def state_name(job: RunStatus) -> str:
    return "waiting_input" if job.waits_for_input else ending_state(job.ending)


def next_cursor(job: RunStatus) -> int:
    """Return the byte of the output at which a later `job read` continues: the byte after the shown
    excerpt, or the end of the output if the reply shows the matches of a search."""
    if isinstance(job.output, Excerpt):
        return job.output.byte + job.output.capture.size
    return job.total.size


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


def find_prompt(output: Capture) -> str:
    """Return the program's prompt: the last line of the output, which does not end in a newline."""
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
