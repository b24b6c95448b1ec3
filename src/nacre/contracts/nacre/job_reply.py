"""Replies of the tool `job` of the `nacre` contract, each as text and as data."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from nacre.contracts.contract import Reply
from nacre.contracts.nacre.job import JobReplyContext
from nacre.contracts.nacre.reply import build_run_reply, find_hints, find_port_hints
from nacre.contracts.nacre.reply_details import build_details, next_cursor, state_name
from nacre.contracts.nacre.shown_output import (
    NOTHING,
    ShownOutput,
    from_rendered,
    read_call,
    show_output,
)
from nacre.contracts.nacre.status_lines import activity_text, describe_with_ports, state_lines
from nacre.contracts.phrases import process_texts, session_notes, shorten_command
from nacre.model.caller import ReadPosition
from nacre.model.outcome import Exited
from nacre.model.requests import (
    AlreadyEnded,
    Excerpt,
    Listing,
    Matches,
    RunStatus,
    SessionStatus,
)
from nacre.text.render import render_page
from nacre.text.search import number_lines

_NO_NEWLINE: Final = "text had no \\n at its end; the program may wait for that"
_LITERAL_NEWLINE: Final = (
    "text ends in a backslash and the letter n, not in a newline, which is \\n in JSON"
)
# Seconds before a run's timeout from which on the action `list` mentions the timeout.
_NEAR_TIMEOUT: Final = 600.0


def build_job_reply(listing: Listing, reply_context: JobReplyContext) -> Reply:
    if listing.sessions is not None:
        return _reply_for_sessions(listing.sessions, reply_context.session_change)
    if reply_context.action == "list":
        return _reply_for_list(listing)
    if len(listing.runs) == 1:
        reply = _reply_for_one(listing.runs[0], reply_context)
    else:
        reply = _reply_for_several(listing, reply_context)
    positions = (_read_position(job, reply_context) for job in listing.runs)
    return msgspec.structs.replace(
        reply, read_to={run: position for run, position in positions if position is not None}
    )


def _reply_for_one(job: RunStatus, reply_context: JobReplyContext) -> Reply:
    if isinstance(job.output, Matches):
        return _render_matches(job, job.output, reply_context)
    if reply_context.page:
        return _render_page(job, job.output, _session_note(job, reply_context))
    found = [] if reply_context.action == "read" else _find_hints(job, reply_context)
    if reply_context.action == "wait":
        found += find_port_hints(job, reply_context.until, reply_context.run_of)
    if reply_context.control_key:
        found.append(
            "stdin is not a terminal: job signal INT interrupts the run, eof: true ends its input"
        )
    elif reply_context.literal_newline:
        found.append(_LITERAL_NEWLINE)
    elif reply_context.unterminated and job.waits_for_input:
        found.append(_NO_NEWLINE)
    reply = build_run_reply(
        job,
        show_output(
            job,
            reply_context.max_bytes,
            reply_context.read_output,
            page_bytes=reply_context.page_bytes,
            fold=not reply_context.ranged,
        ),
        state=_session_note(job, reply_context),
        hints=found,
        clamped=reply_context.wait_clamped_to,
        until=reply_context.until,
        always=reply_context.action == "signal",
        since_last=reply_context.action in ("wait", "write"),
        signal_sent=reply_context.signal_sent,
    )
    if reply_context.action == "read" and job.total.size and not job.output.capture.size:
        return _append_text(reply, f"({job.run} has {job.total.lines:,} lines)\n{reply.text}")
    return reply


def _read_position(
    job: RunStatus, reply_context: JobReplyContext
) -> tuple[str, ReadPosition | None]:
    """Return how far the replies to the caller have now reported the run. A reply that skips output
    which is new to the caller leaves the position where it was; no reply moves it back."""
    if not isinstance(job.output, Excerpt):
        return job.run, None
    known = reply_context.read_position(job.run) or ReadPosition(0, False)
    follows = job.output.byte <= known.byte
    byte = max(known.byte, next_cursor(job)) if follows else known.byte
    return job.run, ReadPosition(byte, job.ending is not None)


def _append_text(reply: Reply, text: str) -> Reply:
    return msgspec.structs.replace(reply, text=text.removesuffix("\n(no output)"))


def _session_note(job: RunStatus, reply_context: JobReplyContext) -> str | None:
    """Return the note about the session of a run whose end no earlier reply has reported."""
    position = reply_context.read_position(job.run)
    if position is not None and position.ended:
        return None
    return session_notes(job, _script(job))


def _script(job: RunStatus) -> bytes:
    return job.command.encode("utf-8", "surrogateescape")


def _find_hints(job: RunStatus, reply_context: JobReplyContext) -> list[str]:
    if isinstance(job.event, AlreadyEnded) or reply_context.action == "signal":
        return []
    cwd = job.cwd.encode("utf-8", "surrogateescape")
    return find_hints(
        job,
        _script(job),
        cwd,
        reply_context.path,
        reply_context.run_of,
        lasts=True,  # whether the run has a session is not known here
        withheld=reply_context.withheld,
    )


def _render_page(job: RunStatus, page: Excerpt, state: str | None) -> Reply:
    """Build the reply that shows the output from a given byte offset on, with the offset for the
    next read. `state` is the note about the run's session, or None."""
    reply = build_run_reply(job, from_rendered(render_page(page.capture, page.line)), state=state)
    if not page.capture.size:
        nothing = f"(nothing after byte {page.byte}, of {job.total.size})"
        return _append_text(reply, f"{nothing}\n{reply.text}")
    if page.complete:
        return reply
    cursor = next_cursor(job)
    body = reply.text if reply.text.endswith("\n") else f"{reply.text}\n"
    rest = f"{job.total.size - cursor:,} bytes follow: job {read_call(job.run, since=cursor)}"
    return _append_text(reply, f"{body}[{rest}]")


def _render_matches(job: RunStatus, matches: Matches, reply_context: JobReplyContext) -> Reply:
    found = matches.found
    texts: list[str] = []
    shown: list[int] = []
    room = reply_context.max_bytes
    context = any(not each.matches for each in found)
    for text, each in zip(number_lines(found, separate=context), found, strict=True):
        room -= len(text.encode())
        if room < 0 and shown:
            break
        texts.append(text)
        shown.append(each.line)
    all_searched = matches.complete or (job.ending is not None and matches.line > job.total.lines)
    cut = len(shown) < len(found) or not all_searched
    part = ShownOutput(text="".join(texts), shown=tuple(_line_ranges(shown)), cut=cut)
    lines = [*state_lines(job, part)]
    if cut:
        on = shown[-1] + 1 if len(shown) < len(found) else matches.line
        lines.insert(0, _continuation(job.run, matches, reply_context, on))
    if not found and not cut:
        lines.insert(0, f"(no match in {_searched_lines(job, reply_context)})")
    return Reply(
        text=part.text + "\n".join(lines),
        is_error=False,
        details=build_details(job, part, ()),
        run=job.run,
    )


def _searched_lines(job: RunStatus, reply_context: JobReplyContext) -> str:
    first, last = reply_context.first, reply_context.last
    if first > job.total.lines:
        return f"lines from {first:,} on; the output ends with line {job.total.lines:,}"
    if first == 1 and last is None:
        return f"{job.total.lines:,} line{'' if job.total.lines == 1 else 's'}"
    return f"lines {first:,} to {min(last or job.total.lines, job.total.lines):,}"


def _continuation(run: str, matches: Matches, reply_context: JobReplyContext, line: int) -> str:
    if line <= reply_context.first and not matches.found:
        return f"[the pattern takes too long, in line {line} or soon after it; simplify it]"
    more = {} if reply_context.last is None else {"to": reply_context.last}
    more |= {"context": reply_context.context} if reply_context.context else {}
    call = read_call(run, grep=reply_context.pattern or "", from_=line, **more)
    searched = "" if matches.found else f"no match in lines {reply_context.first} to {line - 1}; "
    return f"[{searched}search incomplete; continue: job {call}]"


def _line_ranges(lines: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for line in lines:
        if first is None or last is None or line > last + 1:
            if first is not None and last is not None:
                yield first, last
            first = line
        last = line
    if first is not None and last is not None:
        yield first, last


def _reply_for_several(listing: Listing, reply_context: JobReplyContext) -> Reply:
    texts, data = [], []
    for job in listing.runs:
        max_bytes = reply_context.max_bytes // len(listing.runs)
        reply = build_run_reply(
            job,
            show_output(
                job, max_bytes, reply_context.read_output, page_bytes=reply_context.page_bytes
            ),
            state=_session_note(job, reply_context),
            hints=_find_hints(job, reply_context) if reply_context.action == "wait" else (),
            until=reply_context.until,
            always=reply_context.action == "signal",
            since_last=reply_context.action == "wait",
            signal_sent=reply_context.signal_sent,
        )
        data.append(reply.details)
        texts.append(f"{job.run} ({shorten_command(job.command)}):\n{reply.text.rstrip()}")
    return Reply(text="\n".join(texts), is_error=False, details={"runs": data})


def _reply_for_sessions(sessions: tuple[SessionStatus, ...], change: str) -> Reply:
    data = [
        {"name": each.name, "cwd": each.cwd, "idle_seconds": round(each.idle_seconds, 1)}
        for each in sessions
    ]
    lines = (
        f"{each.name}  {each.cwd or '(new)'}  used {each.idle_seconds:.0f} s ago"
        for each in sessions
    )
    text = "\n".join(lines) or "(no sessions)"
    if change:
        text += f"\n[{change}]"
    return Reply(text=text, is_error=False, details={"sessions": data})


def _reply_for_list(listing: Listing) -> Reply:
    data = [
        {
            **build_details(job, NOTHING, ()),
            "command": job.command,
            "ports": [] if job.activity is None else list(job.activity.ports),
            **({} if job.timeout_in is None else {"timeout_in": round(job.timeout_in, 1)}),
        }
        for job in listing.runs
    ]
    text = "\n".join(map(_list_line, listing.runs)) or "(no runs)"
    return Reply(text=text, is_error=False, details={"runs": data})


def _list_line(job: RunStatus) -> str:
    how = f"exited {job.ending.code}" if isinstance(job.ending, Exited) else state_name(job)
    if job.queued:
        how = "queued"
    elif job.activity is not None and job.activity.stopped:
        how = "stopped"
    facts = "" if job.activity is None else f", {activity_text(job.activity)}"
    if job.timeout_in is not None and job.timeout_in < _NEAR_TIMEOUT:
        facts += f", its timeout ends it in {job.timeout_in:.0f} s"
    left = process_texts("left running", job.processes.left_running, describe_with_ports)
    behind = f"  ({'; '.join(left)})" if left else ""
    command = shorten_command(job.command)
    return f"{job.run}  {how}  {job.seconds:.1f}s  {command}{facts}{behind}"
