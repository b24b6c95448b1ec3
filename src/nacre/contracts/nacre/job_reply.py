"""What nacre's tool `job` says."""

from collections.abc import Iterable, Iterator

import msgspec

from nacre.contracts.contract import Reply
from nacre.contracts.nacre.job import JobReplyContext
from nacre.contracts.nacre.reply import (
    build_details,
    build_run_reply,
    find_hints,
    next_cursor,
    render_output,
    shorten_command,
    state_lines,
    state_name,
)
from nacre.model.outcome import Exited
from nacre.model.requests import Listing, MatchedLine, RunStatus
from nacre.text.render import Rendered, render_page
from nacre.text.search import number_lines


def build_job_reply(listing: Listing, reply_context: JobReplyContext) -> Reply:
    if reply_context.action == "list":
        return _reply_for_list(listing)
    if len(listing.runs) == 1:
        return _reply_for_one(listing.runs[0], reply_context)
    return _reply_for_several(listing, reply_context)


def _reply_for_one(job: RunStatus, reply_context: JobReplyContext) -> Reply:
    if job.found is not None:
        return _render_matches(job, job.found, reply_context)
    if reply_context.page:
        return _render_page(job)
    found = [] if reply_context.action == "read" else _find_hints(job, reply_context)
    if reply_context.unterminated and job.waits_for_input:
        found.append("text had no \\n at its end; the program may wait for that")
    reply = build_run_reply(
        job,
        render_output(job, reply_context.max_bytes),
        hints=found,
        clamped=reply_context.wait_clamped_to,
        unmet=reply_context.until and job.met is None and not job.waits_for_input,
        always=reply_context.action == "signal",
    )
    if reply_context.action == "read" and job.size and not job.output.size:
        return _append_text(reply, f"({job.run} has {job.lines or 0:,} lines)\n{reply.text}")
    return reply


def _append_text(reply: Reply, text: str) -> Reply:
    return msgspec.structs.replace(reply, text=text.removesuffix("\n(no output)"))


def _find_hints(job: RunStatus, reply_context: JobReplyContext) -> list[str]:
    if job.already_ended or reply_context.action == "signal":
        return []
    script = job.command.encode("utf-8", "surrogateescape")
    cwd = job.cwd.encode("utf-8", "surrogateescape")
    return find_hints(job, script, cwd, reply_context.path, reply_context.run_of)


def _render_page(job: RunStatus) -> Reply:
    """From a byte on, and where to go on."""
    reply = build_run_reply(job, render_page(job.output, job.line))
    if not job.output.size:
        nothing = f"(nothing after byte {job.byte}, of {job.size})"
        return _append_text(reply, f"{nothing}\n{reply.text}")
    if job.complete:
        return reply
    cursor = next_cursor(job)
    body = reply.text if reply.text.endswith("\n") else f"{reply.text}\n"
    return _append_text(reply, f"{body}[{job.size - cursor:,} bytes follow: since {cursor}]")


def _render_matches(
    job: RunStatus, found: tuple[MatchedLine, ...], reply_context: JobReplyContext
) -> Reply:
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
    cut = len(shown) < len(found) or not job.complete
    part = Rendered(head="".join(texts), shown=tuple(_line_ranges(shown)), shortened=cut)
    lines = [*state_lines(job, part)]
    if cut:
        on = shown[-1] + 1 if len(shown) < len(found) else job.line
        lines.insert(0, _continuation(job, reply_context, on))
    if not found and not cut:
        lines.insert(0, f"(no line matches, of {job.lines or 0:,})")
    return Reply(
        text=part.head + "\n".join(lines),
        is_error=False,
        details=build_details(job, part, ()),
        run=job.run,
    )


def _continuation(job: RunStatus, reply_context: JobReplyContext, line: int) -> str:
    if line <= reply_context.first and not job.found:
        return f"[the pattern takes too long, in line {line} or soon after it; simplify it]"
    pattern = msgspec.json.encode(reply_context.pattern).decode()
    more = f'"grep": {pattern}, "from": {line}'
    return f'[not all was searched: job {{"action": "read", "run": "{job.run}", {more}}}]'


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
        settled = job.state is not None or job.waits_for_input or job.met is not None
        max_bytes = reply_context.max_bytes // len(listing.runs)
        part = (
            render_output(job, max_bytes)
            if settled and not job.already_ended
            else Rendered(head="")
        )
        reply = build_run_reply(job, part, always=reply_context.action == "signal")
        data.append(reply.details)
        texts.append(f"{job.run} ({shorten_command(job.command)}):\n{reply.text.rstrip()}")
    return Reply(text="\n".join(texts), is_error=False, details={"runs": data})


def _reply_for_list(listing: Listing) -> Reply:
    data = [
        {
            **build_details(job, Rendered(head=""), ()),
            "command": job.command,
            "ports": list(job.ports),
        }
        for job in listing.runs
    ]
    text = "\n".join(map(_list_line, listing.runs)) or "(no runs)"
    return Reply(text=text, is_error=False, details={"runs": data})


def _list_line(job: RunStatus) -> str:
    how = f"exited {job.state.code}" if isinstance(job.state, Exited) else state_name(job)
    listens = "".join(f", port {port}" for port in job.ports)
    left = [
        f"left running: {each.pid} {shorten_command(each.command)}"
        + "".join(f", port {port}" for port in each.ports)
        for each in job.left_running
    ]
    behind = f"  ({'; '.join(left)})" if left else ""
    return f"{job.run}  {how}  {job.seconds:.1f}s  {shorten_command(job.command)}{listens}{behind}"
