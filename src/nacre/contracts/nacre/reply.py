"""Replies of the `nacre` contract, each as text for the model and as data.

The text of a reply is the output of the run, followed by lines in brackets about the run's state,
leftover processes and hints. The reply to a plain success (exit code 0, nothing else to report) has
no line in brackets. The data of every reply has the same fields, plus fields for special cases such
as a prompt.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from nacre.contracts.contract import Reply
from nacre.contracts.nacre.reply_context import ReplyContext
from nacre.contracts.nacre.reply_details import (
    build_details,
    list_failed_stages,
    next_cursor,
    shown_capture,
)
from nacre.contracts.nacre.shown_output import ShownOutput, show_output
from nacre.contracts.nacre.status_lines import (
    artifact_lines,
    ending_text,
    process_lines,
    state_lines,
)
from nacre.contracts.phrases import moved_notes, session_notes
from nacre.hints.questions import ends_in_question
from nacre.model.caller import ReadPosition
from nacre.model.findings import AnyFinding, NeedsTerminal, ToolSuggested, TrailerSkipped
from nacre.model.outcome import Exited, Lost, NotStarted, Outcome
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
    Excerpt,
    Running,
    RunProcesses,
    RunStatus,
    input_wait,
)
from nacre.model.wait_conditions import NO_CONDITIONS, Conditions, PortOpen
from nacre.prepare.environment import NO_EDITOR, withheld_secrets
from nacre.text.clean import decode

_DETACHED_IN_SESSION: Final = (
    "other calls can use the session now; the state of this command is saved when it ends, unless "
    "another call uses the session before"
)
_LOOKED_AT: Final = 4096  # number of bytes at the end of the output in which git names an editor
# Pattern for scripts that may get a hint even if they succeed: scripts with a change of the shell's
# state (`cd`, `export`, `source`) or a here-document.
_MAY_NEED_HINT: Final = re.compile(
    rb"\b(?:cd|chdir|pushd|popd|export|source|read)\b|(?:^|[;&\n])\s*\.\s|<<"
)
# Pattern for scripts that may run an interpreter which reads its script from stdin.
_MAY_READ_SCRIPT: Final = re.compile(rb"\b(?:python|node)")


def build_reply(
    result: Outcome | Running, reply_context: ReplyContext, findings: Sequence[AnyFinding]
) -> Reply:
    """Build the reply to a call of the tool `bash`."""
    if isinstance(result, Outcome) and isinstance(result.ending, NotStarted):
        return build_refusal_reply(result.ending.why, run=result.run, cwd=reply_context.cwd)
    job = _build_status(result, reply_context)
    return build_run_reply(
        job,
        show_output(
            job,
            reply_context.max_bytes,
            reply_context.read_output,
            page_bytes=reply_context.page_bytes,
        ),
        state="; ".join([*moved_notes(findings), *_session_lines(result, reply_context)]) or None,
        hints=_find_hints(job, reply_context, findings),
        clamped=reply_context.wait_clamped_to,
        until=reply_context.until,
    )


def _session_lines(result: Outcome | Running, reply_context: ReplyContext) -> list[str]:
    if isinstance(result, Outcome):
        note = session_notes(result, reply_context.script, result.session_moved)
        return [] if note is None else [note]
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
            event=input_wait(result) if result.waits_for_input else result.met,
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
    found += find_port_hints(job, reply_context.until, reply_context.find_run)
    for finding in findings:
        match finding:
            case ToolSuggested(message=message):
                found.append(message)
            case NeedsTerminal(words=words, why=why, instead=instead):
                if not found and job.ending != Exited(127) and _fits_failure(job, words):
                    found.append(f"{words}: {why}; {instead}")
            case TrailerSkipped(why=why):
                found.append(f"a commit got no trailer: {why}")
    return found


def find_port_hints(
    job: RunStatus, until: Conditions, find_run: Callable[[int], str | None]
) -> list[str]:
    """Return hints about the ports for which the call has waited in vain: the ports on which the
    run listens instead, and the processes outside of the run that hold the awaited ports."""
    awaited = [each.port for each in until.listed if isinstance(each, PortOpen)]
    if job.met is not None or job.queued or not awaited:
        return []
    own = [port for each in job.processes.left_running for port in each.ports]
    own += () if job.activity is None else job.activity.ports
    listens = []
    if own and {*own}.isdisjoint(awaited):
        names = ", ".join(map(str, own))
        listens = [f"the run listens on port {names}, not on {', '.join(map(str, awaited))}"]
    from nacre.hints.hints import awaited_port  # lazy import: most replies have no hints

    hints = (awaited_port(port, job.run, find_run) for port in awaited)
    return [*listens, *(hint for hint in hints if hint is not None)]


def _fits_failure(job: RunStatus, words: str) -> bool:
    """Return whether a command that needs a terminal may have failed for lack of it. A command that
    succeeded needed none, and git says so when it cannot open an editor. The message of nacre in
    place of git's editor says already what to do."""
    if job.ending is None or not words.startswith("git "):
        return job.ending != Exited(0)
    shown = shown_capture(job)
    output = (shown.tail or shown.head)[-_LOOKED_AT:]
    return job.ending != Exited(0) and b"editor" in output and NO_EDITOR not in output


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
    """Return hints for the model about a run that has ended or waits for input. `lasts` is True if
    the command ran in a session, which keeps changes of the shell's state for later calls.
    `withheld` are the names of variables that the command did not get because they look like
    secrets. `literal_env` are references to other variables in the values of the call's `env`."""
    if job.ending is None:
        return _find_input_hints(script) if job.waits_for_input else []
    stage_failed = bool(list_failed_stages(job))
    reads = any(name.encode() in script for name in withheld) or (withheld and stage_failed)
    shown = shown_capture(job)
    asks = ends_in_question(shown.tail or shown.head, unterminated=shown.unterminated)
    if job.ending == Exited(0) and not (reads or asks or _MAY_NEED_HINT.search(script)):
        return []
    # Lazy import: most replies have no hints.
    from nacre.hints.hints import find_hints
    from nacre.hints.run_facts import RunFacts

    facts = RunFacts(
        script=script,
        cwd=cwd,
        path=path,
        ending=job.ending,
        stage_failed=stage_failed,
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


def _find_input_hints(script: bytes) -> list[str]:
    if not _MAY_READ_SCRIPT.search(script):
        return []
    from nacre.hints.hints import reads_script  # lazy import: most replies have no hints

    hint = reads_script(script)
    return [] if hint is None else [hint]


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
    signal_sent: str = "",
) -> Reply:
    """Build the reply about one run: the shown output, then status lines in brackets.

    `state` is the text of a note about the run's session, or None. `clamped` is the maximum wait in
    seconds that replaced a longer requested wait, or None. `until` has the conditions for
    which the call waited. If `always` is True, the reply has a status line even for exit code 0.
    `since_last` means that the reply shows only the output since the last reply about the run.
    `signal_sent` is the name of a signal that the call has sent to the run.

    If a reader could mistake the output for lines of nacre, the reply of a success ends in the
    explicit line `[exit code 0]`."""
    body = part.text
    nothing_new = since_last and job.total.size > 0 and not shown_capture(job).size
    always = always or nothing_new
    lines = [
        *([f"[sent {signal_sent}]"] if signal_sent and job.event is None else []),
        *([f"[nothing new since line {job.total.lines:,}]"] if nothing_new else []),
        *state_lines(job, part, until, always=always),
        *artifact_lines(job),
        *process_lines(job),
        *([f"[{state}]"] if state else []),
        *([f"[this front waits at most {clamped:g} s]"] if clamped is not None else []),
        *(f"[hint: {each}]" for each in dict.fromkeys(hints)),
    ]
    if job.ending == Exited(0) and part.looks_like_status and not always:
        lines.append(f"[{ending_text(job.ending)}]")
    if lines and body and not body.endswith("\n"):
        body += "\n"
    return Reply(
        text=body + "\n".join(lines) or "(no output)",
        is_error=isinstance(job.ending, NotStarted | Lost),
        details=build_details(job, part, [*dict.fromkeys(hints)]),
        run=job.run,
        read_to={job.run: ReadPosition(next_cursor(job), job.ending is not None)},
    )


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
