"""The tool `job` of the `nacre` contract.

One call of `job` lists runs, reads their output, waits for them, writes to their stdin or signals
them. Reading a run's output does not consume it: a later call can read the same bytes again. The
module `contracts.nacre.job_reply` builds the replies of the tool `job`.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import fields, replace

from nacre.contracts.arguments import (
    Kind,
    bad_arguments,
    check_name,
    choice_kind,
    count_kind,
    is_absent,
    object_schema,
    read_arguments,
    seconds_kind,
)
from nacre.contracts.contract import Admitted, ToolSpec
from nacre.contracts.nacre.argument_aliases import translate_job
from nacre.contracts.nacre.reply_context import HAS_TERMINALS, OutputReader, read_nothing
from nacre.contracts.nacre.until import JOB_UNTIL, MAX_WAIT
from nacre.model.caller import Caller, ReadPosition
from nacre.model.refusals import Refused, Unavailable
from nacre.model.requests import (
    Action,
    Between,
    EndRun,
    Interact,
    Last,
    ListRuns,
    ManageSessions,
    Matching,
    Part,
    ReadOutput,
    SendSignal,
    Since,
    WriteInput,
)
from nacre.model.signals import signal_name, signal_number
from nacre.model.wait_conditions import NO_CONDITIONS, Conditions
from nacre.text.search import compile_pattern

_DEFAULT_LISTED: Final = 10  # maximum number of ended runs that the action `list` shows
# Default seconds that the action `write` waits for the program's response to the input.
_ANSWER: Final = 2.0
_MOMENT: Final = 0.5  # seconds that the action `signal` waits for the signal's effect on the run
# Minimum seconds that a call with the argument `until` waits, enough to check each condition once.
_GLANCE: Final = 0.3
_ENDS: Final = ("SIGTERM", "SIGKILL")  # signals that end the whole process tree of a run

_DESCRIPTION: Final = """\
Work with runs by id. `action` is one of:
list: running runs, and the last that have ended.
read: output of `run`: all (cut if long), from byte `since`, the last `lines`, lines `from` to \
`to`, or lines that match `grep` with `context` lines around them.
wait: until `run`, or the first of `runs` (with all: true all), has ended, waits for input \
or meets `until`; at most `wait` seconds ({wait:g}). Shows output since the last reply.
write: `text` to the stdin of an interactive `run` (end it with \\n), or eof: true; waits \
{answer:g} s for the answer.
signal: `signal` (TERM) to all processes of `run` or `runs`; what survives TERM gets KILL after \
`grace` seconds ({grace:g}).
sessions: list the sessions; `reset` or `remove` one by name."""


def _convert_run_id(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError
    return str(value).strip().encode("utf-8", "replace").decode()


def _convert_run_ids(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, list | tuple):
        raise ValueError
    given = [each for each in value if not is_absent(each)]
    return tuple(dict.fromkeys(map(_convert_run_id, given))) or None


_RUN: Final = Kind(
    description="the id of one run, like r7 (runs takes several)",
    schema={"type": "string"},
    convert=_convert_run_id,
)
_RUNS: Final = Kind(
    description="a list of ids, like r7",
    schema={"type": "array", "items": {"type": "string"}},
    convert=_convert_run_ids,
)
_KEYS: Final = msgspec.structs.replace(_RUNS, description="a list of keys")
_SIGNAL: Final = Kind(
    description="a signal, like TERM, INT or 9", schema={"type": "string"}, convert=signal_number
)
_ACTIONS: Final = ["list", "read", "wait", "write", "signal", "sessions"]
_ACTION: Final = (
    choice_kind([*_ACTIONS, "screen"]) if HAS_TERMINALS else choice_kind(_ACTIONS, ["screen"])
)
_LINE: Final = count_kind(1, 10**15)
_MANY: Final = count_kind(0, 10**15)


class Arguments(Struct, frozen=True, kw_only=True):
    action: Annotated[
        Literal["list", "read", "wait", "write", "signal", "sessions", "screen"], _ACTION
    ]
    run: Annotated[str | None, _RUN] = None
    runs: Annotated[tuple[str, ...] | None, _RUNS] = None
    since: Annotated[int | None, _MANY] = None
    lines: Annotated[int | None, _LINE] = None
    from_: Annotated[int | None, _LINE] = field(default=None, name="from")
    to: Annotated[int | None, _LINE] = None
    grep: str | None = None
    context: Annotated[int | None, count_kind(0, 1000)] = None
    wait: Annotated[float | None, seconds_kind(0, MAX_WAIT)] = None
    until: Annotated[Conditions, JOB_UNTIL] = NO_CONDITIONS
    all: bool = False
    text: str | None = None
    keys: Annotated[tuple[str, ...] | None, _KEYS] = None
    eof: bool = False
    signal: Annotated[int | None, _SIGNAL] = None
    grace: Annotated[float | None, seconds_kind(0, MAX_WAIT)] = None
    max_output: Annotated[int | None, count_kind(0, 200_000)] = None
    reset: str | None = None
    remove: str | None = None


# Arguments of the tool `job` that each of its actions accepts, besides `action`.
_FIELDS_BY_ACTION: Final[dict[str, tuple[str, ...]]] = {
    "list": (),
    "read": ("run", "since", "lines", "from", "to", "grep", "context", "max_output"),
    "wait": ("run", "runs", "all", "wait", "until", "since", "max_output"),
    "write": ("run", "text", "keys", "eof", "wait", "until", "since", "max_output"),
    "signal": ("run", "runs", "signal", "grace", "max_output"),
    "sessions": ("reset", "remove"),
    "screen": ("run",),
}
# Arguments that are refused with an explanation, and that no message offers.
_UNDECLARED: Final = () if HAS_TERMINALS else ("keys",)
_NO_SCREEN: Final = Unavailable(
    problem="terminals are not available yet, so there is no screen; job read shows the output"
)
_NO_KEYS: Final = Unavailable(
    problem="keys need a terminal, which is not available yet; write text instead, with \\n for "
    "Enter, or eof: true"
)

Wait = Callable[[float | None], tuple[float, float | None]]


# Ctrl-C, Ctrl-D, Ctrl-Z and Ctrl-\ as a terminal would get them.
_CONTROL_KEYS: Final = (b"\x03", b"\x04", b"\x1a", b"\x1c")


class JobReplyContext(Struct, frozen=True, kw_only=True):
    """Facts about a call of the tool `job` that are needed only for building its reply."""

    action: str
    max_bytes: int
    page_bytes: int  # as in `ReplyContext`
    wait_clamped_to: float | None = None
    pattern: str | None = None
    first: int = 1  # number of the output line where the search for `pattern` starts
    last: int | None = None  # number of the last output line that is searched; None: no limit
    context: int = 0  # number of context lines around each match
    session_change: str = ""  # what the call does with a session; empty: it only lists sessions
    # Whether the text that the call wrote to stdin lacks a final newline.
    unterminated: bool = False
    # Whether the text to write is a key that only a terminal understands, such as Ctrl-C.
    control_key: bool = False
    # Whether the call reads given lines (`from`, `to`, `lines`), which the reply shows unfolded.
    ranged: bool = False
    page: bool = False  # whether the call reads the output from a given byte offset (`since`)
    until: Conditions = NO_CONDITIONS  # conditions for which the call waits
    path: bytes = b""
    run_of: Callable[[int], str | None] = lambda _: None
    read_output: OutputReader = read_nothing
    # Function that returns how far earlier replies have reported a run.
    read_position: Callable[[str], ReadPosition | None] = lambda _: None
    # Whether the written text ends in a backslash and the letter n instead of a newline.
    literal_newline: bool = False
    notes: tuple[str, ...] = ()  # notes about arguments of the call that were translated
    withheld: tuple[str, ...] = ()  # names of variables that commands do not get
    signal_sent: str = ""  # name of a signal other than TERM and KILL that the call sends


def build_spec(wait: float, longest: float, max_bytes: int, grace: float) -> ToolSpec:
    descriptions = {
        "action": "What to do",
        "run": "Id of a run, like r7",
        "runs": "wait, signal: several ids",
        "all": "wait: every one of runs, and all of until",
        "since": "Byte of the output to start at: the cursor of a reply",
        "lines": "read: number of last lines",
        "from": "read: first line, from 1",
        "to": "read: last line, inclusive",
        "grep": "read: Python regex for lines, within from and to; (?i) ignores case",
        "context": "read: lines around each match",
        "wait": f"Seconds this call waits, 0 to {longest:g}; NOT a kill timeout",
        "until": "wait, write: conditions; the call returns when one is met",
        "text": "write: sent as it is; \\n is Enter",
        "eof": "write: close stdin",
        "signal": "signal: name or number, default TERM",
        "grace": f"signal: seconds until KILL, default {grace:g}",
        "max_output": f"Bytes of output in the reply, default {max_bytes}",
        "reset": "sessions: name of the session to clear",
        "remove": "sessions: name of the session to delete",
    }
    description = _DESCRIPTION.format(wait=wait, answer=_ANSWER, grace=grace)
    # The reply schema of the tool is imported lazily, because only the declaration of the tool for
    # a model needs it.
    from nacre.contracts.reply_schemas import NACRE_JOB_REPLY

    schema = with_longest_wait(object_schema(Arguments, descriptions), longest)
    return ToolSpec(
        name="job", description=description, schema=schema, reply_schema=NACRE_JOB_REPLY
    )


def with_longest_wait(schema: dict[str, Any], longest: float) -> dict[str, Any]:
    """Return a copy of a tool's schema in which `longest` is the maximum of the argument `wait`. A
    call whose `wait` is above `longest`, but not above 900 seconds, is not refused; the call waits
    `longest` seconds."""
    properties = schema["properties"]
    wait = {**properties["wait"], "maximum": longest}
    return {**schema, "properties": {**properties, "wait": wait}}


def admit_job(
    arguments: object,
    caller: Caller,
    wait: Wait,
    max_bytes: int,
    grace: float,
    withheld: Callable[[Caller], tuple[str, ...]] = lambda _: (),
) -> Admitted:
    """Convert the arguments of nacre's tool `job` to an internal request. Raises Refused."""
    arguments, notes = translate_job(arguments)
    given = read_arguments(arguments, Arguments, undeclared=_UNDECLARED, lenient=True)
    _check_arguments(given)
    path = caller.variable(b"PATH") or b""
    reply_context = JobReplyContext(
        action=given.action,
        max_bytes=max_bytes if given.max_output is None else given.max_output,
        page_bytes=max_bytes,
        path=path,
        run_of=caller.find_run,
        read_output=caller.read_output,
        read_position=caller.read_position,
        notes=notes,
        withheld=withheld(caller),
    )
    match given.action:
        case "list":
            return Admitted(request=ListRuns(last=_DEFAULT_LISTED), reply_context=reply_context)
        case "read":
            return _admit_read(given, reply_context)
        case "wait":
            return _admit_wait(given, reply_context, *wait(given.wait))
        case "write":
            seconds = _ANSWER if given.wait is None else given.wait
            return _admit_write(given, reply_context, *wait(seconds))
        case "signal":
            return _admit_signal(given, reply_context, grace)
        case "sessions":
            request = ManageSessions(reset=given.reset, remove=given.remove)
            change = f"reset {given.reset}" if given.reset else ""
            change = f"removed {given.remove}" if given.remove else change
            return Admitted(
                request=request, reply_context=replace(reply_context, session_change=change)
            )
        case "screen":
            raise Refused(_NO_SCREEN)


def _check_arguments(given: Arguments) -> None:
    """Raises Refused if the call has an argument that its action does not accept, or lacks an
    argument that its action needs."""
    takes = _FIELDS_BY_ACTION[given.action]
    for each in fields(Arguments):
        name = each.encode_name
        if name == "action" or name in takes:
            continue
        if getattr(given, each.name) not in (None, False, (), NO_CONDITIONS):
            does = ", ".join(name for name in takes if name not in _UNDECLARED) or "nothing else"
            raise bad_arguments(
                f"{name} cannot be used with action {given.action}, which takes {does}"
            )
    if "run" in takes and given.run is None and given.runs is None:
        several = " (or runs, a list of ids)" if "runs" in takes else ""
        raise bad_arguments(
            f"action {given.action} needs run, an id like r7{several}; action list shows the runs"
        )
    if given.run is not None and given.runs is not None:
        raise bad_arguments("run and runs exclude each other; give one of them")
    if given.reset is not None and given.remove is not None:
        raise bad_arguments("reset and remove exclude each other; give one of them")
    for name, session in (("reset", given.reset), ("remove", given.remove)):
        if session is not None:
            check_name(name, session)


def _admit_read(given: Arguments, reply_context: JobReplyContext) -> Admitted:
    ranged = given.from_ is not None or given.to is not None
    chosen = {
        "since": given.since is not None,
        "lines": given.lines is not None,
        "from/to": ranged and given.grep is None,
        "grep": given.grep is not None,
    }
    names = [name for name, there in chosen.items() if there]
    if len(names) > 1:
        raise bad_arguments(f"{' and '.join(names)} exclude each other; give one of them")
    if given.context is not None and given.grep is None:
        raise bad_arguments("context needs grep; give both, or leave context out")
    between = Between(first=given.from_ or 1, last=given.to)
    if between.last is not None and between.last < between.first:
        raise bad_arguments(
            f"to ({between.last}) is before from ({between.first}); give the smaller number first"
        )
    part: Part = between
    reply_context = replace(reply_context, ranged=ranged or given.lines is not None)
    if given.grep is not None:
        part = Matching(
            pattern=_check_pattern(given.grep), context=given.context or 0, between=between
        )
        reply_context = replace(
            reply_context,
            pattern=given.grep,
            first=between.first,
            last=between.last,
            context=given.context or 0,
        )
    elif given.lines is not None:
        part = Last(lines=given.lines)
    elif given.since is not None:
        part = Since(cursor=given.since)
        reply_context = replace(reply_context, page=True)
    return Admitted(
        request=ReadOutput(run=given.run or "", part=part, max_bytes=reply_context.max_bytes),
        reply_context=reply_context,
    )


def _check_pattern(given: str) -> str:
    try:
        compile_pattern(given)
    except re.error as error:
        raise bad_arguments(f"grep is not a regular expression ({error}): {{}}", given) from None
    return given


def _admit_wait(
    given: Arguments, reply_context: JobReplyContext, wait: float, clamped: float | None
) -> Admitted:
    request = Interact(
        runs=given.runs or (given.run or "",),
        wait_limit=max(wait, _GLANCE) if given.until else wait,
        until=replace(given.until, all=given.all or given.until.all),
        since=given.since,
        read_position=reply_context.read_position,
        all=given.all,
    )
    return Admitted(
        request=request,
        reply_context=replace(reply_context, wait_clamped_to=clamped, until=given.until),
    )


def _admit_write(
    given: Arguments, reply_context: JobReplyContext, wait: float, clamped: float | None
) -> Admitted:
    if given.keys is not None:
        raise Refused(_NO_KEYS)
    if given.text is None and not given.eof:
        raise bad_arguments("action write needs text, or eof: true")
    try:
        text = (given.text or "").encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise bad_arguments(
            f"text contains {error.object[error.start]!r}, which is no character"
        ) from None
    request = Interact(
        runs=(given.run or "",),
        wait_limit=wait,
        until=given.until,
        since=given.since,
        read_position=reply_context.read_position,
        action=WriteInput(data=text, eof=given.eof),
    )
    unended = bool(text) and not text.endswith(b"\n") and not given.eof
    reply_context = replace(
        reply_context,
        wait_clamped_to=clamped,
        unterminated=unended,
        literal_newline=unended and text.endswith(b"\\n"),
        control_key=text.strip(b"\n") in _CONTROL_KEYS,
        until=given.until,
    )
    return Admitted(request=request, reply_context=reply_context)


def _admit_signal(given: Arguments, reply_context: JobReplyContext, grace: float) -> Admitted:
    number = signal_number("TERM") if given.signal is None else given.signal
    action: Action = SendSignal(signal=number)
    if signal_name(number) in _ENDS or given.grace is not None:
        action = EndRun(signal=number, grace=grace if given.grace is None else given.grace)
    request = Interact(
        runs=given.runs or (given.run or "",),
        wait_limit=_MOMENT,
        action=action,
        read_position=reply_context.read_position,
    )
    # The effect of a signal that ends runs is visible; other signals may have no effect.
    sent = "" if signal_name(number) in _ENDS else signal_name(number)
    return Admitted(request=request, reply_context=replace(reply_context, signal_sent=sent))
