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


class Run(Struct, frozen=True, kw_only=True, tag=True):
    """Run this, and tell me how it ended; or, once my patience is over, that it goes on."""

    plan: Plan
    patience: Seconds | None = None  # after the spawn; None: for ever
    workspace: bytes = b""
    number: int | None = None  # None: it is numbered where it runs
    wishes: Wishes | None = None
    job: bool = False  # what is handed back is one of its contract's jobs
    most: int | None = None  # jobs that may run at once; None: any number


class Wait(Struct, frozen=True, kw_only=True, tag=True):
    """Tell me when it has ended, at the latest when my patience is over."""

    run: str
    workspace: bytes
    patience: Seconds | None = None


class Write(Struct, frozen=True, kw_only=True, tag=True):
    """Have it read this."""

    run: str
    workspace: bytes
    data: bytes
    eof: bool = False
    waits: bool = False  # until there is room, if the program does not read


class Signal(Struct, frozen=True, kw_only=True, tag=True):
    """Send a signal to everything that a live run has started."""

    run: str
    signal: SignalNumber
    workspace: bytes = b""


class End(Struct, frozen=True, kw_only=True, tag=True):
    """Have it end, and all that it has started: this signal, then the grace, then KILL."""

    run: str
    workspace: bytes
    signal: SignalNumber
    grace: Seconds


class Jobs(Struct, frozen=True, kw_only=True, tag=True):
    """Tell me of runs that were handed back while they ran; first end some, or wait for one."""

    runs: tuple[str, ...] | None = None  # None: all jobs of the workspace
    live: bool = False  # of all, only those that run
    end: tuple[str, ...] = ()
    grace: float = 5.0  # for those
    patience: float | None = 0.0  # until the first of them has ended
    most: int = 50 * 1024  # bytes of output of each


class Done(Struct, frozen=True, kw_only=True, tag=True):
    """The ask was carried out (or, `found=False`, there is no such live run)."""

    found: bool = True


class Running(Struct, frozen=True, kw_only=True, tag=True):
    """It goes on, without whoever has started it."""

    run: str
    pid: int
    seconds: float
    output: Capture  # so far
    log: bytes | None = None  # the file that all of it goes to


class Job(Struct, frozen=True, kw_only=True, tag=True):
    """One run as the store and the system know it now."""

    run: str
    command: str
    cwd: str
    begun: float  # by the clock on the wall
    seconds: float
    state: Ending | None  # None: it runs
    output: Capture
    left_running: tuple[Survivor, ...] = ()
    stored: bool = True


class Listing(Struct, frozen=True, kw_only=True, tag=True):
    jobs: tuple[Job, ...]
    ended: tuple[str, ...] = ()  # at our wish
    over: tuple[str, ...] = ()  # which were to be ended, but had
    unknown: tuple[str, ...] = ()


class No(Struct, frozen=True, kw_only=True, tag=True):
    """Nothing was done; why."""

    refusal: AnyRefusal


Ask = Run | Wait | Write | Signal | End
Answer = Outcome | Running | Listing
Reached = Outcome | Running | Done | No  # what crosses a socket
