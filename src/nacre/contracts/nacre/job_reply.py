"""Replies of the tool `job` of the `nacre` contract, each as text and as data."""

from collections.abc import Iterable, Iterator

import msgspec

from nacre.contracts.contract import Reply
from nacre.contracts.nacre.job import JobReplyContext
from nacre.contracts.nacre.reply import (
    build_details,
    build_run_reply,
    describe_with_ports,
    find_hints,
    next_cursor,
    render_output,
    state_lines,
    state_name,
)
from nacre.contracts.phrases import process_texts, shorten_command
from nacre.model.outcome import Exited
from nacre.model.requests import AlreadyEnded, Excerpt, Listing, Matches, RunStatus
from nacre.text.render import Rendered, render_page
from nacre.text.search import number_lines


def build_job_reply(listing: Listing, reply_context: JobReplyContext) -> Reply:
    if reply_context.action == "list":
        return _reply_for_list(listing)
    if len(listing.runs) == 1:
        return _reply_for_one(listing.runs[0], reply_context)
    return _reply_for_several(listing, reply_context)


def _reply_for_one(job: RunStatus, reply_context: JobReplyContext) -> Reply:
    if isinstance(job.output, Matches):
        return _render_matches(job, job.output, reply_context)
    if reply_context.page:
        return _render_page(job, job.output)
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
    if reply_context.action == "read" and job.total.size and not job.output.capture.size:
        return _append_text(reply, f"({job.run} has {job.total.lines:,} lines)\n{reply.text}")
    return reply


def _append_text(reply: Reply, text: str) -> Reply:
    return msgspec.structs.replace(reply, text=text.removesuffix("\n(no output)"))


def _find_hints(job: RunStatus, reply_context: JobReplyContext) -> list[str]:
    if isinstance(job.event, AlreadyEnded) or reply_context.action == "signal":
        return []
    script = job.command.encode("utf-8", "surrogateescape")
    cwd = job.cwd.encode("utf-8", "surrogateescape")
    return find_hints(job, script, cwd, reply_context.path, reply_context.run_of)


def _render_page(job: RunStatus, page: Excerpt) -> Reply:
    """Build the reply that shows the output from a given byte offset on, with the offset for the
    next read."""
    reply = build_run_reply(job, render_page(page.capture, page.line))
    if not page.capture.size:
        nothing = f"(nothing after byte {page.byte}, of {job.total.size})"
        return _append_text(reply, f"{nothing}\n{reply.text}")
    if page.complete:
        return reply
    cursor = next_cursor(job)
    body = reply.text if reply.text.endswith("\n") else f"{reply.text}\n"
    return _append_text(reply, f"{body}[{job.total.size - cursor:,} bytes follow: since {cursor}]")


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
    cut = len(shown) < len(found) or not matches.complete
    part = Rendered(head="".join(texts), shown=tuple(_line_ranges(shown)), shortened=cut)
    lines = [*state_lines(job, part)]
    if cut:
        on = shown[-1] + 1 if len(shown) < len(found) else matches.line
        lines.insert(0, _continuation(job.run, matches, reply_context, on))
    if not found and not cut:
        lines.insert(0, f"(no line matches, of {job.total.lines:,})")
    return Reply(
        text=part.head + "\n".join(lines),
        is_error=False,
        details=build_details(job, part, ()),
        run=job.run,
    )


def _continuation(run: str, matches: Matches, reply_context: JobReplyContext, line: int) -> str:
    if line <= reply_context.first and not matches.found:
        return f"[the pattern takes too long, in line {line} or soon after it; simplify it]"
    pattern = msgspec.json.encode(reply_context.pattern).decode()
    more = f'"grep": {pattern}, "from": {line}'
    return f'[not all was searched: job {{"action": "read", "run": "{run}", {more}}}]'


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
        settled = job.ending is not None or job.event is not None
        max_bytes = reply_context.max_bytes // len(listing.runs)
        part = (
            render_output(job, max_bytes)
            if settled and not isinstance(job.event, AlreadyEnded)
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
            "ports": list(job.processes.ports),
        }
        for job in listing.runs
    ]
    text = "\n".join(map(_list_line, listing.runs)) or "(no runs)"
    return Reply(text=text, is_error=False, details={"runs": data})


def _list_line(job: RunStatus) -> str:
    how = f"exited {job.ending.code}" if isinstance(job.ending, Exited) else state_name(job)
    listens = "".join(f", port {port}" for port in job.processes.ports)
    left = process_texts("left running", job.processes.left_running, describe_with_ports)
    behind = f"  ({'; '.join(left)})" if left else ""
    return f"{job.run}  {how}  {job.seconds:.1f}s  {shorten_command(job.command)}{listens}{behind}"
