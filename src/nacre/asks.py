"""What can be asked about runs, and what is answered.

An ask is what a contract makes of a model's arguments; asks and answers can cross a socket. Runs
are named as people name them, `r17`, and belong to a workspace: a foreign one is not found.
"""

from typing import Annotated

from msgspec import Meta, Struct

from nacre.events import Full
from nacre.outcome import Capture, Ending, Outcome, Survivor
from nacre.plan import Plan
from nacre.refusals import AnyRefusal

# What comes over a socket may be anything.
SignalNumber = Annotated[int, Meta(ge=1, le=64)]
Seconds = Annotated[float, Meta(ge=0)]


class Wishes(Struct, frozen=True, kw_only=True):
    """That somebody listens who is not here, and how; see `events.Listening`."""

    buffer: int
    full: Full


class Until(Struct, frozen=True, kw_only=True):
    """One thing that may become true while a run goes on, and for which nobody waits longer."""

    output: str | None = None  # a line of it matches this regular expression
    port: int | None = None  # a process of this run listens there
    http: str | None = None  # something answers there, with a status below 500
    file: bytes | None = None  # it exists
    idle: float | None = None  # for so many seconds it has said nothing


class Evidence(Struct, frozen=True, kw_only=True):
    """Which of them has become true, and what was seen."""

    until: Until
    line: int | None = None  # of the output, that matched
    text: str = ""  # that line
    pid: int | None = None  # who listens
    status: int = 0  # that was answered
    stranger: int | None = None  # by whom, if that is no process of this run


class Request(Struct, frozen=True, kw_only=True):
    """A name by which the same is never run twice."""

    id: str
    digest: str  # of what makes the plan: the same name for something else is a mistake


class Run(Struct, frozen=True, kw_only=True, tag="Run"):
    """Run this, and tell me how it ended; or, once my patience is over, that it goes on."""

    plan: Plan
    patience: Seconds | None = None  # after the spawn; None: for ever
    workspace: bytes = b""
    number: int | None = None  # None: it is numbered where it runs
    wishes: Wishes | None = None
    job: bool = False  # what is handed back is one of its contract's jobs
    # That may be alive at once: jobs, when this is to be one, else any; None: any number.
    most: int | None = None
    request: Request | None = None
    watched: bool = False  # somebody reads its output while he waits
    until: tuple[Until, ...] = ()  # seen to by whoever asks, not by whoever runs it


class Wait(Struct, frozen=True, kw_only=True, tag="Wait"):
    """Tell me when it has ended, at the latest when my patience is over."""

    run: str
    workspace: bytes
    patience: Seconds | None = None
    input: bool = False  # or when it waits for input


class Write(Struct, frozen=True, kw_only=True, tag="Write"):
    """Have it read this."""

    run: str
    workspace: bytes
    data: bytes
    eof: bool = False
    waits: bool = False  # until there is room, if the program does not read


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


class Jobs(Struct, frozen=True, kw_only=True, tag="Jobs"):
    """Tell me of runs that were handed back while they ran; first end some, or wait for one."""

    runs: tuple[str, ...] | None = None  # None: all jobs of the workspace
    live: bool = False  # of all, only those that run
    end: tuple[str, ...] = ()
    grace: float = 5.0  # for those
    patience: float | None = 0.0  # until the first of them has ended
    most: int = 50 * 1024  # bytes of output of each


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


class Look(Struct, frozen=True, kw_only=True, tag="Look"):
    """Show me some of what a run has said."""

    run: str
    part: Part
    most: int  # bytes of it


class List(Struct, frozen=True, kw_only=True, tag="List"):
    """Tell me of all that live, and of some that have ended."""

    last: int


class Attend(Struct, frozen=True, kw_only=True, tag="Attend"):
    """Tell me when the first of these has ended, waits for input, or has what I wait for. First
    have it read something, or send it a signal."""

    runs: tuple[str, ...]
    patience: float
    until: tuple[Until, ...] = ()
    since: int | None = None  # only what it says after this byte; None: all that it has said
    text: bytes | None = None
    eof: bool = False
    signal: SignalNumber | None = None
    grace: float | None = None  # after the signal, before all of it is killed; None: it is not


JobAsk = Look | List | Attend


class Done(Struct, frozen=True, kw_only=True, tag="Done"):
    """The ask was carried out (or, `found=False`, there is no such live run)."""

    found: bool = True


class Running(Struct, frozen=True, kw_only=True, tag="Running"):
    """It goes on, without whoever has started it."""

    run: str
    pid: int
    seconds: float
    output: Capture  # so far
    log: bytes | None = None  # the file that all of it goes to
    asks: bool = False  # it waits for input
    fired: Evidence | None = None  # what we have waited for, if that came true


class Earlier(Struct, frozen=True, kw_only=True, tag="Earlier"):
    """The same was asked before, and this is the run that was made of it."""

    run: str


class Job(Struct, frozen=True, kw_only=True, tag="Job"):
    """One run as the store and the system know it now."""

    run: str
    command: str
    cwd: str
    begun: float = 0.0  # by the clock on the wall
    seconds: float
    state: Ending | None  # None: it runs
    output: Capture
    left_running: tuple[Survivor, ...] = ()
    put_down: tuple[Survivor, ...] = ()  # what it would have left, or had, and was ended
    out_of_memory: bool = False
    past: bool = False  # it had ended before a signal could be sent
    ports: tuple[int, ...] = ()  # on which it listens
    stored: bool = True
    open_stdin: bool = False  # it can be written to
    asks: bool = False  # it waits for input
    fired: Evidence | None = None
    # Where the output that is here begins, if that is not all of it.
    line: int = 1
    byte: int = 0
    lines: int | None = None  # how many there are of it in all
    size: int = 0
    found: "tuple[Found, ...] | None" = None  # what was looked for
    over: bool = True  # all of it was looked at; else up to `line`, or to the end of what is here


class Found(Struct, frozen=True, kw_only=True):
    """A line that was looked for, or stands near one."""

    line: int
    text: str
    matches: bool


class Listing(Struct, frozen=True, kw_only=True, tag="Listing"):
    jobs: tuple[Job, ...]
    ended: tuple[str, ...] = ()  # at our wish
    over: tuple[str, ...] = ()  # which were to be ended, but had
    unknown: tuple[str, ...] = ()


class No(Struct, frozen=True, kw_only=True, tag="No"):
    """Nothing was done; why."""

    refusal: AnyRefusal


Ask = Run | Wait | Write | Signal | End
Answer = Outcome | Running | Listing
Reached = Outcome | Running | Earlier | Done | No  # what crosses a socket
