"""What nacre's replies say: the output, then a few lines in brackets where there is something to
say; and the same as data, in one shape for every case.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from nacre.contracts.contract import Reply
from nacre.contracts.nacre.reply_context import ReplyContext
from nacre.contracts.phrases import session_notes
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
from nacre.model.requests import ConditionMet, Running, RunStatus
from nacre.model.signals import signal_name
from nacre.text.clean import as_displayed, decode, strip_escapes
from nacre.text.render import Rendered, render

_PROMPT: Final = 2000  # characters
_COMMAND: Final = 80
_LONG_OUTPUT: Final = 1024 * 1024  # bytes that nobody wants to read
# A success is worth a remark only when it may have been meant to last, or had a here-document.
_MAY_HAVE_STARTED: Final = re.compile(
    rb"\b(?:cd|chdir|pushd|popd|export|source)\b|(?:^|[;&\n])\s*\.\s|<<"
)


def build_reply(
    result: Outcome | Running, reply_context: ReplyContext, findings: Sequence[AnyFinding]
) -> Reply:
    """To a call of `bash`."""
    if isinstance(result, Outcome) and isinstance(result.ending, NotStarted):
        return build_refusal_reply(result.ending.why, run=result.run, cwd=reply_context.cwd)
    job = _build_status(result, reply_context)
    return build_run_reply(
        job,
        render_output(job, reply_context.max_bytes),
        state=_session_lines(result, reply_context),
        hints=_find_hints(job, reply_context, findings),
        clamped=reply_context.wait_clamped_to,
        unmet=reply_context.until and job.met is None,
    )


def _session_lines(result: Outcome | Running, reply_context: ReplyContext) -> str | None:
    if isinstance(result, Outcome):
        return session_notes(result)
    if reply_context.session:
        return "the session goes on without it: what it does to its shell is not remembered"
    return None


def _build_status(result: Outcome | Running, reply_context: ReplyContext) -> RunStatus:
    ended = result if isinstance(result, Outcome) else None
    running = result if isinstance(result, Running) else None
    return RunStatus(
        run=result.run,
        command=decode(reply_context.script),
        cwd=decode(reply_context.cwd),
        started_at=0.0,
        seconds=result.seconds,
        state=ended.ending if ended else None,
        output=result.output,
        left_running=ended.left_running if ended else (),
        terminated=ended.terminated if ended else (),
        out_of_memory=ended.out_of_memory if ended else False,
        open_stdin=reply_context.open_stdin,
        waits_for_input=running.waits_for_input if running else False,
        met=running.met if running else None,
        lines=result.output.lines,
        size=result.output.size,
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
    """What there is to add about one that has ended. `lasts`: what it does to its shell does."""
    if job.state is None or (job.state == Exited(0) and not _MAY_HAVE_STARTED.search(script)):
        return []
    from nacre.hints.hints import RunFacts, find_hints  # most replies have none

    facts = RunFacts(
        script=script,
        cwd=cwd,
        path=path,
        ending=job.state,
        output=job.output.tail or job.output.head,
        unterminated=job.output.unterminated,
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
    """Of one run: what is shown of its output, and where it stands. `state`: what became of its
    session; `unmet`: what was waited for
    has not come true; `always`: also a plain success is said."""
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
        is_error=isinstance(job.state, NotStarted | Lost),
        details=build_details(job, part, hints),
        run=job.run,
    )


def render_output(job: RunStatus, max_bytes: int) -> Rendered:
    return render(job.output, max_bytes, first=job.line, start=job.byte)


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
    # A reply never shrinks because the output grew, be it by a few bytes.
    spare = " " * part.spare
    return f"{part.head}[{lines}{size} left out: job {read}{grep}]{spare}\n{part.tail}"


def state_lines(
    job: RunStatus, part: Rendered, *, unmet: bool = False, always: bool = False
) -> Iterator[str]:
    """Where it stands; nothing for a plain success, which is most of them."""
    how = _ending_text(job.state)
    if job.state is None:
        yield f"[{_running_lines(job, part, unmet=unmet)}]"
    elif job.already_ended:
        yield f"[{job.run} had already ended: {how}]"
    elif job.state != Exited(0) or (always and not job.terminated):
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
            return "lost: whoever ran it was killed, and nobody saw how it ended"
        case NotStarted(why=why):
            return f"not started: {why}"
        case None:
            return "running"


def _running_lines(job: RunStatus, part: Rendered, *, unmet: bool) -> str:
    if job.waits_for_input:
        return f"{job.run} waits for input"
    seen = "" if job.met is None else f": {_condition_text(job.met, part)}"
    cursor = f"; cursor {next_cursor(job)}" if job.size and (part.shown or job.met) else ""
    waited = "; until is not true yet" if unmet else ""
    return f"{job.run} is running{seen}{cursor}{waited}"


def _condition_text(met: ConditionMet, part: Rendered) -> str:
    until = met.condition
    if until.output is not None:
        line = met.line or 0
        shown = any(first <= line <= last for first, last in part.shown)
        text = "" if shown else f": {shorten_command(met.text)}"
        return f"line {line} matches {until.output}{text}"
    if until.port is not None:
        return f"port {until.port} is open (pid {met.pid})"
    if until.http is not None:
        other = f", but from process {met.foreign_pid}, not of this run"
        other = "" if met.foreign_pid is None else other
        return f"{until.http} answers (status {met.status}){other}"
    if until.file is not None:
        return f"{decode(until.file)} exists"
    return f"no output for {until.idle:g} s"


def _artifact_lines(job: RunStatus) -> Iterator[str]:
    saved = job.output.saved
    if saved is not None and saved.problem is not None:
        yield f"[{saved.problem}]"


def _leftover_lines(job: RunStatus) -> Iterator[str]:
    for each in job.left_running:
        yield f"[left running: {_describe_process(each)}]"
    if job.left_running:
        it, its = ("it", "its") if len(job.left_running) == 1 else ("them", "their")
        yield f"[{job.run} keeps {it} and {its} output; job signal {job.run} ends {it}]"
    for each in job.terminated:
        yield f"[ended: {_describe_process(each)}]"


def _describe_process(survivor: Survivor) -> str:
    listens = "".join(f", port {port}" for port in survivor.ports)
    return f"{survivor.pid} {shorten_command(survivor.command)}{listens}"


def shorten_command(command: str) -> str:
    flat = " ".join(command.split())
    return flat if len(flat) <= _COMMAND else f"{flat[: _COMMAND - 1]}…"


# As data.


def build_details(job: RunStatus, part: Rendered, hints: Sequence[str]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "state": state_name(job),
        "exit_code": exit_status(job.state),
        "signal": _signal_name(job.state),
        "seconds": round(job.seconds, 3),
        "run": job.run,
        "cwd": job.cwd,
        "output": {
            "bytes": job.size,
            "lines": job.lines or 0,
            "shown": [list(each) for each in part.shown],
            "cursor": next_cursor(job),
            "cut": part.cut,
        },
        "left_running": [_process_details(each) for each in job.left_running],
        "hints": list(hints),
    }
    if job.waits_for_input:
        details["prompt"] = find_prompt(job.output)
    if job.met is not None:
        details["until"] = _condition_details(job.met)
    if job.terminated:
        details["ended"] = [_process_details(each) for each in job.terminated]
    return details


def state_name(job: RunStatus) -> str:
    return "waiting_input" if job.waits_for_input else ending_state(job.state)


def next_cursor(job: RunStatus) -> int:
    """Where to go on: behind what is shown; of what was looked for, behind all of it."""
    return job.size if job.found is not None else job.byte + job.output.size


def _signal_name(ending: Ending | None) -> str | None:
    signal = ending_signal(ending)
    return None if signal is None else signal_name(signal)


def _process_details(survivor: Survivor) -> dict[str, Any]:
    return {"pid": survivor.pid, "command": survivor.command, "ports": list(survivor.ports)}


def _condition_details(met: ConditionMet) -> dict[str, Any]:
    until = met.condition
    if until.output is not None:
        return {"output": until.output, "line": met.line, "text": met.text}
    if until.port is not None:
        return {"port": until.port, "pid": met.pid}
    if until.http is not None:
        details = {"http": until.http, "status": met.status}
        return details if met.foreign_pid is None else {**details, "stranger": met.foreign_pid}
    if until.file is not None:
        return {"file": decode(until.file)}
    return {"idle": until.idle}


def find_prompt(output: Capture) -> str:
    """The last line, which has no end: what it asks."""
    data = output.tail or output.head
    return as_displayed(strip_escapes(decode(data[-4 * _PROMPT :]))).rpartition("\n")[2][-_PROMPT:]


# Refusals.


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
    reply_context = str(refusal)
    text = (
        f"[{reply_context}]"
        if reply_context.startswith("refused")
        else f"[refused: {reply_context}]"
    )
    return Reply(text=text, is_error=True, details=details)


def _refusal_details(refusal: AnyRefusal) -> tuple[str | None, str, str | None]:
    """The rule that matched, why, and what would pass."""
    match refusal:
        case Dangerous(rule=rule, why=why, instead=instead):
            return rule, why, instead
        case Intercepted(rule=rule, message=message):
            return rule, message, None
        case BadArguments():
            return None, str(refusal), None
    why, semicolon, instead = str(refusal).partition("; ")
    return None, why, instead if semicolon else None
