"""What can be asked about runs, and what is answered.

An ask is what a contract makes of a model's arguments; asks and answers can cross a socket. Runs
are named as people name them, `r17`, and belong to a workspace: a foreign one is not found.
"""

from typing import Annotated

from msgspec import Meta, Struct

from nacre.model.events import Full
from nacre.model.outcome import Capture, Ending, Outcome, Survivor
from nacre.model.plan import Plan
from nacre.model.refusals import AnyRefusal

# What comes over a socket may be anything.
SignalNumber = Annotated[int, Meta(ge=1, le=64)]
Seconds = Annotated[float, Meta(ge=0)]


class ListenOptions(Struct, frozen=True, kw_only=True):
    """That somebody listens who is not here, and how; see `events.Listening`."""

    buffer: int
    full: Full


class Condition(Struct, frozen=True, kw_only=True):
    """One thing that may become true while a run goes on, and for which nobody waits longer."""

    output: str | None = None  # a line of it matches this regular expression
    port: int | None = None  # a process of this run listens there
    http: str | None = None  # something answers there, with a status below 500
    file: bytes | None = None  # it exists
    idle: float | None = None  # for so many seconds it has said nothing


class ConditionMet(
    Struct, frozen=True, kw_only=True, rename={"condition": "until", "foreign_pid": "stranger"}
):
    """Which of them has become true, and what was seen."""

    condition: Condition
    line: int | None = None  # of the output, that matched
    text: str = ""  # that line
    pid: int | None = None  # who listens
    status: int = 0  # that was answered
    foreign_pid: int | None = None  # by whom, if that is no process of this run


class IdempotencyKey(Struct, frozen=True, kw_only=True):
    """A name by which the same is never run twice."""

    id: str
    digest: str  # of what makes the plan: the same name for something else is a mistake


class StartRun(
    Struct,
    frozen=True,
    kw_only=True,
    tag="Run",
    rename={
        "max_live": "most",
        "wait_limit": "patience",
        "listen": "wishes",
        "idempotency_key": "request",
    },
):
    """Run this, and tell me how it ended; or, once my patience is over, that it goes on."""

    plan: Plan
    wait_limit: Seconds | None = None  # after the spawn; None: for ever
    workspace: bytes = b""
    number: int | None = None  # None: it is numbered where it runs
    listen: ListenOptions | None = None
    job: bool = False  # what is handed back is one of its contract's jobs
    # That may be alive at once: jobs, when this is to be one, else any; None: any number.
    max_live: int | None = None
    idempotency_key: IdempotencyKey | None = None
    watched: bool = False  # somebody reads its output while he waits
    until: tuple[Condition, ...] = ()  # seen to by whoever asks, not by whoever runs it


class Wait(Struct, frozen=True, kw_only=True, tag="Wait", rename={"wait_limit": "patience"}):
    """Tell me when it has ended, at the latest when my patience is over."""

    run: str
    workspace: bytes
    wait_limit: Seconds | None = None
    input: bool = False  # or when it waits for input


class Write(Struct, frozen=True, kw_only=True, tag="Write", rename={"wait_for_room": "waits"}):
    """Have it read this."""

    run: str
    workspace: bytes
    data: bytes
    eof: bool = False
    wait_for_room: bool = False  # until there is room, if the program does not read


class Signal(Struct, frozen=True, kw_only=True, tag="Signal"):
    """Send a signal to everything that a live run has started."""

    run: str
    signal: SignalNumber
    workspace: bytes = b""


class End(Struct, frozen=True, kw_only=True, tag="End"):
    """Have it end, and all that it has started: this signal, then the grace, then KILL."""

    run: str
    workspace: bytes
    signal: SignalNumber
    grace: Seconds


class PollJobs(Struct, frozen=True, kw_only=True, tag="Jobs"):
    """Tell me of runs that were handed back while they ran; first end some, or wait for one."""

    runs: tuple[str, ...] | None = None  # None: all jobs of the workspace
    only_live: bool = False  # of all, only those that run
    end: tuple[str, ...] = ()
    grace: float = 5.0  # for those
    wait_limit: float | None = 0.0  # until the first of them has ended
    max_bytes: int = 50 * 1024  # bytes of output of each


class Since(Struct, frozen=True, kw_only=True, tag="Since"):
    """From this byte on."""

    cursor: int = 0


class Last(Struct, frozen=True, kw_only=True, tag="Last"):
    """So many last lines."""

    lines: int


class Between(Struct, frozen=True, kw_only=True, tag="Between"):
    """These lines, from 1 and inclusive; None: to the end."""

    first: int = 1
    last: int | None = None


class Matching(Struct, frozen=True, kw_only=True, tag="Matching"):
    """The lines that match, of these, with some around each."""

    pattern: str
    context: int = 0
    between: Between = Between()


Part = Since | Last | Between | Matching


class ReadOutput(Struct, frozen=True, kw_only=True, tag="Look"):
    """Show me some of what a run has said."""

    run: str
    part: Part
    max_bytes: int  # bytes of it


class ListRuns(Struct, frozen=True, kw_only=True, tag="List"):
    """Tell me of all that live, and of some that have ended."""

    last: int


class Interact(Struct, frozen=True, kw_only=True, tag="Attend"):
    """Tell me when the first of these has ended, waits for input, or has what I wait for. First
    have it read something, or send it a signal."""

    runs: tuple[str, ...]
    wait_limit: float
    until: tuple[Condition, ...] = ()
    since: int | None = None  # only what it says after this byte; None: all that it has said
    text: bytes | None = None
    eof: bool = False
    signal: SignalNumber | None = None
    grace: float | None = None  # after the signal, before all of it is killed; None: it is not


JobRequest = ReadOutput | ListRuns | Interact


class Done(Struct, frozen=True, kw_only=True, tag="Done"):
    """The ask was carried out (or, `found=False`, there is no such live run)."""

    found: bool = True


class Running(
    Struct,
    frozen=True,
    kw_only=True,
    tag="Running",
    rename={"waits_for_input": "asks", "met": "fired"},
):
    """It goes on, without whoever has started it."""

    run: str
    pid: int
    seconds: float
    output: Capture  # so far
    log: bytes | None = None  # the file that all of it goes to
    waits_for_input: bool = False  # it waits for input
    met: ConditionMet | None = None  # what we have waited for, if that came true


class AlreadyStarted(Struct, frozen=True, kw_only=True, tag="Earlier"):
    """The same was asked before, and this is the run that was made of it."""

    run: str


class RunStatus(Struct, frozen=True, kw_only=True, tag="Job"):
    """One run as the store and the system know it now."""

    run: str
    command: str
    cwd: str
    started_at: float = 0.0  # by the clock on the wall
    seconds: float
    state: Ending | None  # None: it runs
    output: Capture
    left_running: tuple[Survivor, ...] = ()
    terminated: tuple[Survivor, ...] = ()  # what it would have left, or had, and was ended
    out_of_memory: bool = False
    already_ended: bool = False  # it had ended before a signal could be sent
    ports: tuple[int, ...] = ()  # on which it listens
    stored: bool = True
    open_stdin: bool = False  # it can be written to
    waits_for_input: bool = False  # it waits for input
    met: ConditionMet | None = None
    # Where the output that is here begins, if that is not all of it.
    line: int = 1
    byte: int = 0
    lines: int | None = None  # how many there are of it in all
    size: int = 0
    found: "tuple[MatchedLine, ...] | None" = None  # what was looked for
    complete: bool = (
        True  # all of it was looked at; else up to `line`, or to the end of what is here
    )


class MatchedLine(Struct, frozen=True, kw_only=True):
    """A line that was looked for, or stands near one."""

    line: int
    text: str
    matches: bool


class Listing(Struct, frozen=True, kw_only=True, tag="Listing"):
    runs: tuple[RunStatus, ...]
    ended: tuple[str, ...] = ()  # at our wish
    already_ended: tuple[str, ...] = ()  # which were to be ended, but had
    unknown: tuple[str, ...] = ()


class Rejected(Struct, frozen=True, kw_only=True, tag="No"):
    """Nothing was done; why."""

    refusal: AnyRefusal


Request = StartRun | Wait | Write | Signal | End
Result = Outcome | Running | Listing
Response = Outcome | Running | AlreadyStarted | Done | Rejected  # what crosses a socket
