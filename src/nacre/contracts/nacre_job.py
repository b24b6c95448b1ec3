"""nacre's tool `job`: what can be done with runs. One verb a call; looking never consumes."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import fields, replace

from nacre.asks import (
    Attend,
    Between,
    Found,
    Job,
    JobAsk,
    Last,
    List,
    Listing,
    Look,
    Matching,
    Part,
    Since,
    Until,
)
from nacre.caller import Caller
from nacre.contracts.arguments import Kind, bad, count, object_schema, read_arguments, seconds
from nacre.contracts.contract import Admitted, Reply, ToolSpec
from nacre.contracts.nacre_until import LONGEST_WAIT, UNTIL, placed
from nacre.contracts.nacre_words import details, hints_of, short, spoken, state
from nacre.outcome import code_of
from nacre.refusals import Refused, Unavailable
from nacre.render import LINE, Rendered
from nacre.signals import signal_name, signal_number

_LISTED: Final = 20  # runs that have ended
_ANSWER: Final = 2.0  # seconds that a program has to say something to what was written
_MOMENT: Final = 0.5  # and to what a signal may do
_ENDS: Final = ("SIGTERM", "SIGKILL")  # signals after which all of a run shall be gone

_DESCRIPTION: Final = """\
See to runs, by their id. `action` is one of:
list: all that run, and the last that have ended.
read: output of `run`: all (shortened), from byte `since`, the last `lines`, lines `from` to `to`, \
or lines that match `grep` with `context` around them.
wait: until `run`, or the first of `runs`, has ended, waits for input, or `until` is true; at most \
`wait` seconds ({wait:g}). With `since` only newer output is shown and matched.
write: `text` to the stdin of an interactive `run` (end it with \\n), or `eof: true`; then wait, \
{answer:g} s by default, for what it says to that.
signal: `signal` (TERM) to everything of `run`; TERM and KILL leave nothing behind after `grace` \
seconds.
Looking at a run does not use it up."""


def _name(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError
    return str(value).strip()


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError
    return tuple(map(_name, value))


def _signal(value: Any) -> int:
    return signal_number(value)


_RUN: Final = Kind(words="the id of a run, like r7", schema={"type": "string"}, take=_name)
_RUNS: Final = Kind(
    words="a list of ids, like r7",
    schema={"type": "array", "items": {"type": "string"}},
    take=_names,
)
_KEYS: Final = msgspec.structs.replace(_RUNS, words="a list of keys")
_SIGNAL: Final = Kind(words="a signal, by name or number", schema={"type": "string"}, take=_signal)
_LINE: Final = count(1, 10**15)
_MANY: Final = count(0, 10**15)


class Arguments(Struct, frozen=True, kw_only=True):
    action: Literal["list", "read", "wait", "write", "signal", "screen"]
    run: Annotated[str | None, _RUN] = None
    runs: Annotated[tuple[str, ...] | None, _RUNS] = None
    since: Annotated[int | None, _MANY] = None
    lines: Annotated[int | None, _LINE] = None
    from_: Annotated[int | None, _LINE] = field(default=None, name="from")
    to: Annotated[int | None, _LINE] = None
    grep: str | None = None
    context: Annotated[int | None, count(0, 1000)] = None
    wait: Annotated[float | None, seconds(0, LONGEST_WAIT)] = None
    until: Annotated[tuple[Until, ...], UNTIL] = ()
    text: str | None = None
    keys: Annotated[tuple[str, ...] | None, _KEYS] = None
    eof: bool = False
    signal: Annotated[int | None, _SIGNAL] = None
    grace: Annotated[float | None, seconds(0, LONGEST_WAIT)] = None
    max_output: Annotated[int | None, count(0, 200_000)] = None


# What goes with each action, besides itself.
_TAKES: Final[dict[str, tuple[str, ...]]] = {
    "list": (),
    "read": ("run", "since", "lines", "from", "to", "grep", "context", "max_output"),
    "wait": ("run", "runs", "wait", "until", "since", "max_output"),
    "write": ("run", "text", "keys", "eof", "wait", "until", "since", "max_output"),
    "signal": ("run", "signal", "grace"),
    "screen": ("run",),
}
_NO_SCREEN: Final = Unavailable(
    problem="there are no terminals yet, so no screen; job read shows what it has printed"
)
_NO_KEYS: Final = Unavailable(
    problem="keys are for terminals, which there are not yet; write text instead, with \\n for "
    "Enter, or eof: true"
)

Wait = Callable[[float | None], tuple[float, float | None]]


class Said(Struct, frozen=True, kw_only=True):
    """What only the reply needs to know of a call."""

    action: str
    most: int
    clamped: float | None = None
    pattern: str | None = None
    unended: bool = False  # what was written has no newline at its end
    page: bool = False
    signal: int | None = None
    path: bytes = b""


def spec(wait: float, most: int) -> ToolSpec:
    told = {
        "action": "What to do",
        "run": "Id of a run, like r7",
        "runs": "wait: ids; the first one counts",
        "since": "Byte cursor",
        "lines": "read: so many last lines",
        "from": "read: first line, from 1",
        "to": "read: last line, inclusive",
        "grep": "read: regex, tried on each line",
        "context": "read: lines around each match",
        "wait": f"Seconds this call waits, 0 to {LONGEST_WAIT:g}; ends nothing",
        "until": "wait, write: come back on the first of these",
        "text": "write: as is; \\n is Enter",
        "keys": "write: not available yet",
        "eof": "write: close stdin",
        "signal": "signal: name or number, default TERM",
        "grace": "signal: seconds before what is left is killed",
        "max_output": f"Bytes of output in the reply, default {most}",
    }
    description = _DESCRIPTION.format(wait=wait, answer=_ANSWER)
    return ToolSpec(name="job", description=description, schema=object_schema(Arguments, told))


def admitted(arguments: object, caller: Caller, wait: Wait, most: int, grace: float) -> Admitted:
    """Raises Refused."""
    given = read_arguments(arguments, Arguments)
    _check(given)
    most = most if given.max_output is None else given.max_output
    said = Said(action=given.action, most=most, path=caller.variable(b"PATH") or b"")
    match given.action:
        case "list":
            return _admitted(List(last=_LISTED), said)
        case "read":
            return _read(given, said)
        case "wait":
            return _wait(given, said, caller, *wait(given.wait))
        case "write":
            seconds = _ANSWER if given.wait is None else given.wait
            return _write(given, said, caller, *wait(seconds))
        case "signal":
            return _signalled(given, said, grace)
        case "screen":
            raise Refused(_NO_SCREEN)


def _admitted(ask: JobAsk, said: Said) -> Admitted:
    return Admitted(ask=ask, said=said)


def _check(given: Arguments) -> None:
    """Raises Refused for what does not go with the action."""
    takes = _TAKES[given.action]
    for each in fields(Arguments):
        name = each.encode_name
        if name == "action" or name in takes:
            continue
        if getattr(given, each.name) not in (None, False, ()):
            does = ", ".join(takes) or "nothing else"
            raise bad(f"{name} does not go with action {given.action}, which takes {does}")
    if "run" in takes and given.run is None and given.runs is None:
        raise bad(f"action {given.action} needs run, the id of one; action list shows all")
    if given.run is not None and given.runs is not None:
        raise bad("run and runs do not go together; give one of them")


def _read(given: Arguments, said: Said) -> Admitted:
    ranged = given.from_ is not None or given.to is not None
    chosen = {
        "since": given.since is not None,
        "lines": given.lines is not None,
        "from/to": ranged and given.grep is None,
        "grep": given.grep is not None,
    }
    names = [name for name, there in chosen.items() if there]
    if len(names) > 1:
        raise bad(f"{' and '.join(names)} do not go together; give one of them")
    if given.context is not None and given.grep is None:
        raise bad("context goes with grep; there are no matches to stand around")
    between = Between(first=given.from_ or 1, last=given.to)
    if between.last is not None and between.last < between.first:
        raise bad(f"to ({between.last}) is before from ({between.first}); lines count upwards")
    part: Part = between
    if given.grep is not None:
        part = Matching(pattern=_pattern(given.grep), context=given.context or 0, between=between)
        said = _with(said, pattern=given.grep)
    elif given.lines is not None:
        part = Last(lines=given.lines)
    elif given.since is not None:
        part = Since(cursor=given.since)
        said = _with(said, page=True)
    return _admitted(Look(run=given.run or "", part=part, most=said.most), said)


def _with(said: Said, **more: Any) -> Said:
    return replace(said, **more)


def _pattern(given: str) -> str:
    try:
        re.compile(given)
    except (re.error, OverflowError, RecursionError) as error:
        raise bad(f"grep is no regular expression ({error}): {{}}", given) from None
    return given


def _wait(
    given: Arguments, said: Said, caller: Caller, wait: float, clamped: float | None
) -> Admitted:
    runs = given.runs or (given.run or "",)
    ask = Attend(runs=runs, patience=wait, until=placed(given.until, caller.cwd), since=given.since)
    return _admitted(ask, _with(said, clamped=clamped))


def _write(
    given: Arguments, said: Said, caller: Caller, wait: float, clamped: float | None
) -> Admitted:
    if given.keys is not None:
        raise Refused(_NO_KEYS)
    if given.text is None and not given.eof:
        raise bad("action write needs text, or eof: true")
    try:
        text = None if given.text is None else given.text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise bad(f"text contains {error.object[error.start]!r}, which is no character") from None
    ask = Attend(
        runs=(given.run or "",),
        patience=wait,
        until=placed(given.until, caller.cwd),
        since=given.since,
        text=text,
        eof=given.eof,
    )
    unended = bool(text) and not text.endswith(b"\n") and not given.eof if text else False
    return _admitted(ask, _with(said, clamped=clamped, unended=unended))


def _signalled(given: Arguments, said: Said, grace: float) -> Admitted:
    number = signal_number("TERM") if given.signal is None else given.signal
    ends = signal_name(number) in _ENDS or given.grace is not None
    ask = Attend(
        runs=(given.run or "",),
        patience=_MOMENT,
        signal=number,
        grace=(grace if given.grace is None else given.grace) if ends else None,
    )
    return _admitted(ask, _with(said, signal=number))


# Replies.


def replied(answer: Listing, said: Said) -> Reply:
    if said.action == "list":
        return _listed(answer)
    if len(answer.jobs) == 1:
        return _one(answer.jobs[0], said)
    return _several(answer, said)


def _one(job: Job, said: Said) -> Reply:
    if job.found is not None:
        return _matches(job, job.found, said)
    if said.signal is not None:
        return spoken(job, said.most, silent=True)
    if said.page:
        return _page(job, said)
    found = [] if said.action == "read" else _hints(job, said)
    if said.unended and job.asks:
        found.append("text had no \\n at its end; the program may wait for that")
    return spoken(job, said.most, hints=found, clamped=said.clamped)


def _hints(job: Job, said: Said) -> list[str]:
    script = job.command.encode("utf-8", "surrogateescape")
    return hints_of(job, script, job.cwd.encode("utf-8", "surrogateescape"), said.path)


def _page(job: Job, said: Said) -> Reply:
    """From a byte on, as it is, and where to go on."""
    reply = spoken(job, 4 * said.most + LINE)
    if job.over:
        return reply
    cursor = reply.details["output"]["cursor"]
    body = reply.text if reply.text.endswith("\n") else f"{reply.text}\n"
    more = f"[{job.size - cursor:,} bytes follow: since {cursor}]"
    return Reply(text=f"{body}{more}", is_error=False, details=reply.details, run=job.run)


def _matches(job: Job, found: tuple[Found, ...], said: Said) -> Reply:
    lines: list[str] = []
    room, last, shown = said.most, 0, []
    near = any(not each.matches for each in found)
    for each in found:
        line = f"{each.line}{':' if each.matches else '-'}{each.text[:LINE]}"
        apart = ["--"] if near and lines and each.line > last + 1 else []
        size = sum(len(part.encode()) + 1 for part in (*apart, line))
        if size > room:
            break
        room, last = room - size, each.line
        lines += [*apart, line]
        shown.append(each.line)
    text = "\n".join(lines) + ("\n" if lines else "")
    part = Rendered(head=text, shown=tuple((line, line) for line in shown))
    made = details(job, part, ())
    made["output"]["cut"] = len(shown) < len(found) or not job.over
    if not found and job.over:
        text = f"(no line matches, of {job.lines or 0:,})"
    elif made["output"]["cut"]:
        first = (shown[-1] if shown else 0) + 1
        text += f'[there may be more: "from": {first}]'
    return Reply(text=text, is_error=False, details=made, run=job.run)


def _several(answer: Listing, said: Said) -> Reply:
    texts, data = [], []
    for job in answer.jobs:
        settled = job.state is not None or job.asks or job.fired is not None
        reply = spoken(job, said.most // len(answer.jobs), silent=not settled)
        data.append(reply.details)
        texts.append(f"{job.run} ({short(job.command)}):\n{reply.text.rstrip()}")
    return Reply(text="\n".join(texts), is_error=False, details={"runs": data})


def _listed(answer: Listing) -> Reply:
    data = [{**details(job, Rendered(head=""), ()), "command": job.command} for job in answer.jobs]
    lines = [_line(job) for job in answer.jobs]
    text = "\n".join(lines) if lines else "(no runs)"
    return Reply(text=text, is_error=False, details={"runs": data})


def _line(job: Job) -> str:
    code = code_of(job.state)
    how = state(job) if code is None or state(job) != "exited" else f"exited {code}"
    ports = "".join(f" :{port}" for each in job.left_running for port in each.ports)
    left = f" (left running: {len(job.left_running)}{ports})" if job.left_running else ""
    return f"{job.run}  {how}  {job.seconds:.1f}s  {short(job.command)}{left}"
