"""What nacre's replies say: the output, then a few lines in brackets where there is something to
say; and the same as data, in one shape for every case.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from nacre.asks import Evidence, Job, Running
from nacre.contracts.contract import Reply
from nacre.contracts.nacre_said import Said
from nacre.contracts.words import remembered
from nacre.findings import AnyFinding, NeedsTerminal, Suggested, Unsigned
from nacre.outcome import (
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
    state_of,
)
from nacre.refusals import (
    AnyRefusal,
    BadArguments,
    CalledOff,
    Dangerous,
    Intercepted,
    NotWaited,
)
from nacre.render import Rendered, render
from nacre.signals import signal_name
from nacre.text import decode, plain, settled

_PROMPT: Final = 2000  # characters
_COMMAND: Final = 80
_MUCH: Final = 1024 * 1024  # bytes that nobody wants to read
# A success is worth a remark only when it may have been meant to last, or had a here-document.
_PERHAPS: Final = re.compile(rb"\b(?:cd|chdir|pushd|popd|export|source)\b|(?:^|[;&\n])\s*\.\s|<<")


def replied(answer: Outcome | Running, said: Said, findings: Sequence[AnyFinding]) -> Reply:
    """To a call of `bash`."""
    if isinstance(answer, Outcome) and isinstance(answer.ending, NotStarted):
        return refused(answer.ending.why, run=answer.run, cwd=said.cwd)
    job = _job(answer, said)
    return spoken(
        job,
        rendered(job, said.most),
        state=_session(answer, said),
        hints=_hints(job, said, findings),
        clamped=said.clamped,
        unmet=said.until and job.fired is None,
    )


def _session(answer: Outcome | Running, said: Said) -> str | None:
    if isinstance(answer, Outcome):
        return remembered(answer)
    if said.session:
        return "the session goes on without it: what it does to its shell is not remembered"
    return None


def _job(answer: Outcome | Running, said: Said) -> Job:
    ended = answer if isinstance(answer, Outcome) else None
    running = answer if isinstance(answer, Running) else None
    return Job(
        run=answer.run,
        command=decode(said.script),
        cwd=decode(said.cwd),
        begun=0.0,
        seconds=answer.seconds,
        state=ended.ending if ended else None,
        output=answer.output,
        left_running=ended.left_running if ended else (),
        put_down=ended.put_down if ended else (),
        out_of_memory=ended.out_of_memory if ended else False,
        open_stdin=said.open_stdin,
        asks=running.asks if running else False,
        fired=running.fired if running else None,
        lines=answer.output.lines,
        size=answer.output.size,
    )


def _hints(job: Job, said: Said, findings: Sequence[AnyFinding]) -> list[str]:
    found = hints_of(job, said.script, said.cwd, said.path, said.run_of, lasts=bool(said.session))
    for finding in findings:
        match finding:
            case Suggested(message=message):
                found.append(message)
            case NeedsTerminal(words=words, why=why, instead=instead):
                found.append(f"{words}: {why}; {instead}")
            case Unsigned(why=why):
                found.append(f"a commit got no trailer: {why}")
    return found


def hints_of(
    job: Job,
    script: bytes,
    cwd: bytes,
    path: bytes,
    run_of: Callable[[int], str | None],
    *,
    lasts: bool = False,
) -> list[str]:
    """What there is to add about one that has ended. `lasts`: what it does to its shell does."""
    if job.state is None or (job.state == Exited(0) and not _PERHAPS.search(script)):
        return []
    from nacre.hindsight.hints import Facts, hints  # most replies have none

    facts = Facts(
        script=script,
        cwd=cwd,
        path=path,
        ending=job.state,
        said=job.output.tail or job.output.head,
        unterminated=job.output.unterminated,
        open_stdin=job.open_stdin,
        out_of_memory=job.out_of_memory,
        run_of=run_of,
        lasts=lasts,
    )
    return list(hints(facts))


def spoken(
    job: Job,
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
    body = _body(job, part)
    lines = [
        *state_lines(job, part, unmet=unmet, always=always),
        *_kept(job),
        *_left(job),
        *([f"[{state}]"] if state else []),
        *([f"[this front waits at most {clamped:g} s]"] if clamped is not None else []),
        *(f"[hint: {each}]" for each in hints),
    ]
    if lines and body and not body.endswith("\n"):
        body += "\n"
    return Reply(
        text=body + "\n".join(lines) or "(no output)",
        is_error=isinstance(job.state, NotStarted | Lost),
        details=details(job, part, hints),
        run=job.run,
    )


def rendered(job: Job, most: int) -> Rendered:
    return render(job.output, most, first=job.line, start=job.byte)


def _body(job: Job, part: Rendered) -> str:
    if part.left is None:
        return part.head
    left = part.left
    count = left.last - left.first + 1
    lines = f"{count:,} lines, " if count > 1 else ""
    size = f"{left.size:,} byte{'' if left.size == 1 else 's'}"
    where = f'"from": {left.first}, "to": {left.last}' if count > 1 else f'"since": {left.byte}'
    read = f'{{"action": "read", "run": "{job.run}", {where}}}'
    grep = " or grep" if left.size > _MUCH else ""
    # A reply never shrinks because the output grew, be it by a few bytes.
    spare = " " * part.spare
    return f"{part.head}[{lines}{size} left out: job {read}{grep}]{spare}\n{part.tail}"


def state_lines(
    job: Job, part: Rendered, *, unmet: bool = False, always: bool = False
) -> Iterator[str]:
    """Where it stands; nothing for a plain success, which is most of them."""
    how = _how(job.state)
    if job.state is None:
        yield f"[{_going(job, part, unmet=unmet)}]"
    elif job.past:
        yield f"[{job.run} had already ended: {how}]"
    elif job.state != Exited(0) or (always and not job.put_down):
        yield f"[{how}]"


def _how(ending: Ending | None) -> str:
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


def _going(job: Job, part: Rendered, *, unmet: bool) -> str:
    if job.asks:
        return f"{job.run} waits for input"
    seen = "" if job.fired is None else f": {_seen(job.fired, part)}"
    cursor = f"; cursor {cursor_of(job)}" if job.size and (part.shown or job.fired) else ""
    waited = "; until is not true yet" if unmet else ""
    return f"{job.run} is running{seen}{cursor}{waited}"


def _seen(evidence: Evidence, part: Rendered) -> str:
    until = evidence.until
    if until.output is not None:
        line = evidence.line or 0
        shown = any(first <= line <= last for first, last in part.shown)
        text = "" if shown else f": {short(evidence.text)}"
        return f"line {line} matches {until.output}{text}"
    if until.port is not None:
        return f"port {until.port} is open (pid {evidence.pid})"
    if until.http is not None:
        other = f", but from process {evidence.stranger}, not of this run"
        other = "" if evidence.stranger is None else other
        return f"{until.http} answers (status {evidence.status}){other}"
    if until.file is not None:
        return f"{decode(until.file)} exists"
    return f"no output for {until.idle:g} s"


def _kept(job: Job) -> Iterator[str]:
    saved = job.output.saved
    if saved is not None and saved.problem is not None:
        yield f"[{saved.problem}]"


def _left(job: Job) -> Iterator[str]:
    for each in job.left_running:
        yield f"[left running: {_process(each)}]"
    if job.left_running:
        it, its = ("it", "its") if len(job.left_running) == 1 else ("them", "their")
        yield f"[{job.run} keeps {it} and {its} output; job signal {job.run} ends {it}]"
    for each in job.put_down:
        yield f"[ended: {_process(each)}]"


def _process(survivor: Survivor) -> str:
    listens = "".join(f", port {port}" for port in survivor.ports)
    return f"{survivor.pid} {short(survivor.command)}{listens}"


def short(command: str) -> str:
    flat = " ".join(command.split())
    return flat if len(flat) <= _COMMAND else f"{flat[: _COMMAND - 1]}…"


# As data.


def details(job: Job, part: Rendered, hints: Sequence[str]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "state": state(job),
        "exit_code": _code(job.state),
        "signal": _signal(job.state),
        "seconds": round(job.seconds, 3),
        "run": job.run,
        "cwd": job.cwd,
        "output": {
            "bytes": job.size,
            "lines": job.lines or 0,
            "shown": [list(each) for each in part.shown],
            "cursor": cursor_of(job),
            "cut": part.cut,
        },
        "left_running": [_survivor(each) for each in job.left_running],
        "hints": list(hints),
    }
    if job.asks:
        made["prompt"] = prompt(job.output)
    if job.fired is not None:
        made["until"] = _evidence(job.fired)
    if job.put_down:
        made["ended"] = [_survivor(each) for each in job.put_down]
    return made


def state(job: Job) -> str:
    return "waiting_input" if job.asks else state_of(job.state)


def cursor_of(job: Job) -> int:
    """Where to go on: behind what is shown; of what was looked for, behind all of it."""
    return job.size if job.found is not None else job.byte + job.output.size


def _code(ending: Ending | None) -> int | None:
    """What it has exited with, if it has; a signal is none."""
    match ending:
        case Exited(code) | TimedOut(how=Exited(code)) | Cancelled(how=Exited(code)):
            return code
        case _:
            return None


def _signal(ending: Ending | None) -> str | None:
    match ending:
        case Killed(number) | TimedOut(how=Killed(number)) | Cancelled(how=Killed(number)):
            return signal_name(number)
        case _:
            return None


def _survivor(survivor: Survivor) -> dict[str, Any]:
    return {"pid": survivor.pid, "command": survivor.command, "ports": list(survivor.ports)}


def _evidence(evidence: Evidence) -> dict[str, Any]:
    until = evidence.until
    if until.output is not None:
        return {"output": until.output, "line": evidence.line, "text": evidence.text}
    if until.port is not None:
        return {"port": until.port, "pid": evidence.pid}
    if until.http is not None:
        made = {"http": until.http, "status": evidence.status}
        return made if evidence.stranger is None else {**made, "stranger": evidence.stranger}
    if until.file is not None:
        return {"file": decode(until.file)}
    return {"idle": until.idle}


def prompt(output: Capture) -> str:
    """The last line, which has no end: what it asks."""
    data = output.tail or output.head
    return settled(plain(decode(data[-4 * _PROMPT :]))).rpartition("\n")[2][-_PROMPT:]


# Refusals.


def refused(refusal: AnyRefusal, *, run: str | None = None, cwd: bytes = b"") -> Reply:
    rule, why, instead = _reasons(refusal)
    made: dict[str, Any] = {
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
    said = str(refusal)
    text = f"[{said}]" if said.startswith("refused") else f"[refused: {said}]"
    return Reply(text=text, is_error=True, details=made)


def _reasons(refusal: AnyRefusal) -> tuple[str | None, str, str | None]:
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
