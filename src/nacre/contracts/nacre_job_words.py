"""What nacre's tool `job` says."""

from collections.abc import Iterable, Iterator

import msgspec

from nacre.asks import Found, Job, Listing
from nacre.contracts.contract import Reply
from nacre.contracts.nacre_job import Said
from nacre.contracts.nacre_words import (
    cursor_of,
    details,
    hints_of,
    rendered,
    short,
    spoken,
    state,
    state_lines,
)
from nacre.outcome import Exited
from nacre.render import Rendered, page


def replied(answer: Listing, said: Said) -> Reply:
    if said.action == "list":
        return _listed(answer)
    if len(answer.jobs) == 1:
        return _one(answer.jobs[0], said)
    return _several(answer, said)


def _one(job: Job, said: Said) -> Reply:
    if job.found is not None:
        return _matches(job, job.found, said)
    if said.page:
        return _page(job)
    found = [] if said.action == "read" else _hints(job, said)
    if said.unended and job.asks:
        found.append("text had no \\n at its end; the program may wait for that")
    reply = spoken(
        job,
        rendered(job, said.most),
        hints=found,
        clamped=said.clamped,
        unmet=said.until and job.fired is None and not job.asks,
        always=said.action == "signal",
    )
    if said.action == "read" and job.size and not job.output.size:
        return _said(reply, f"({job.run} has {job.lines or 0:,} lines)\n{reply.text}")
    return reply


def _said(reply: Reply, text: str) -> Reply:
    return msgspec.structs.replace(reply, text=text.removesuffix("\n(no output)"))


def _hints(job: Job, said: Said) -> list[str]:
    if job.past or said.action == "signal":
        return []
    script = job.command.encode("utf-8", "surrogateescape")
    cwd = job.cwd.encode("utf-8", "surrogateescape")
    return hints_of(job, script, cwd, said.path, said.run_of)


def _page(job: Job) -> Reply:
    """From a byte on, and where to go on."""
    reply = spoken(job, page(job.output, job.line))
    if not job.output.size:
        nothing = f"(nothing after byte {job.byte}, of {job.size})"
        return _said(reply, f"{nothing}\n{reply.text}")
    if job.over:
        return reply
    cursor = cursor_of(job)
    body = reply.text if reply.text.endswith("\n") else f"{reply.text}\n"
    return _said(reply, f"{body}[{job.size - cursor:,} bytes follow: since {cursor}]")


def _matches(job: Job, found: tuple[Found, ...], said: Said) -> Reply:
    texts: list[str] = []
    shown: list[int] = []
    room = said.most
    for text, each in zip(_numbered(found), found, strict=True):
        room -= len(text.encode())
        if room < 0 and shown:
            break
        texts.append(text)
        shown.append(each.line)
    cut = len(shown) < len(found) or not job.over
    part = Rendered(head="".join(texts), shown=tuple(_ranges(shown)), shortened=cut)
    lines = [*state_lines(job, part)]
    if cut:
        on = shown[-1] + 1 if len(shown) < len(found) else job.line
        lines.insert(0, _go_on(job, said, on))
    if not found and not cut:
        lines.insert(0, f"(no line matches, of {job.lines or 0:,})")
    return Reply(
        text=part.head + "\n".join(lines),
        is_error=False,
        details=details(job, part, ()),
        run=job.run,
    )


def _go_on(job: Job, said: Said, line: int) -> str:
    if line <= said.first and not job.found:
        return f"[the pattern takes too long, in line {line} or soon after it; simplify it]"
    pattern = msgspec.json.encode(said.pattern).decode()
    more = f'"grep": {pattern}, "from": {line}'
    return f'[not all was searched: job {{"action": "read", "run": "{job.run}", {more}}}]'


def _numbered(found: tuple[Found, ...]) -> Iterator[str]:
    """As grep -n shows it: `12:` before a line that matches, `11-` before one that stands near."""
    near, last = any(not each.matches for each in found), None
    for each in found:
        apart = "--\n" if near and last is not None and each.line > last + 1 else ""
        last = each.line
        yield f"{apart}{each.line}{':' if each.matches else '-'}{each.text}\n"


def _ranges(lines: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for line in lines:
        if first is None or last is None or line > last + 1:
            if first is not None and last is not None:
                yield first, last
            first = line
        last = line
    if first is not None and last is not None:
        yield first, last


def _several(answer: Listing, said: Said) -> Reply:
    texts, data = [], []
    for job in answer.jobs:
        settled = job.state is not None or job.asks or job.fired is not None
        most = said.most // len(answer.jobs)
        part = rendered(job, most) if settled and not job.past else Rendered(head="")
        reply = spoken(job, part, always=said.action == "signal")
        data.append(reply.details)
        texts.append(f"{job.run} ({short(job.command)}):\n{reply.text.rstrip()}")
    return Reply(text="\n".join(texts), is_error=False, details={"runs": data})


def _listed(answer: Listing) -> Reply:
    data = [
        {**details(job, Rendered(head=""), ()), "command": job.command, "ports": list(job.ports)}
        for job in answer.jobs
    ]
    text = "\n".join(map(_line, answer.jobs)) or "(no runs)"
    return Reply(text=text, is_error=False, details={"runs": data})


def _line(job: Job) -> str:
    how = f"exited {job.state.code}" if isinstance(job.state, Exited) else state(job)
    listens = "".join(f", port {port}" for port in job.ports)
    left = [
        f"left running: {each.pid} {short(each.command)}"
        + "".join(f", port {port}" for port in each.ports)
        for each in job.left_running
    ]
    behind = f"  ({'; '.join(left)})" if left else ""
    return f"{job.run}  {how}  {job.seconds:.1f}s  {short(job.command)}{listens}{behind}"
