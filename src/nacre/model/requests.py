"""Requests about runs, and their responses.

A contract turns a model's arguments into a request. A request to the warden and its response cross
a socket; a `JobRequest` and its `Listing` stay in the calling process. Requests name a run by its
id, like `r17`. A run belongs to a workspace, and is not found from another one.

Encoded names (`tag`, `rename`) are fixed: clients and wardens of different versions talk to each
other.
"""

from typing import Annotated

from msgspec import Meta, Struct

from nacre.model.events import Full
from nacre.model.outcome import Capture, Ending, Outcome, Survivor
from nacre.model.plan import KIB, MIB, Keep, Plan
from nacre.model.refusals import AnyRefusal

# A client may send any number; these types reject numbers that make no sense.
SignalNumber = Annotated[int, Meta(ge=1, le=64)]
Seconds = Annotated[float, Meta(ge=0)]


class ListenOptions(Struct, frozen=True, kw_only=True):
    """Options of a listener in another process; see `events.Listening`."""

    buffer: int
    full: Full


# Conditions: what an `until` waits for, and what was seen when one is met.


class OutputMatches(Struct, frozen=True, tag="output"):
    """A line of the output matches a regular expression."""

    pattern: str


class PortOpen(Struct, frozen=True, tag="port"):
    """A process of the run listens on this TCP port."""

    port: int


class HttpAnswers(Struct, frozen=True, tag="http"):
    """The URL answers with a status below 500."""

    url: str


class FileExists(Struct, frozen=True, tag="file"):
    path: bytes


class OutputIdle(Struct, frozen=True, tag="idle"):
    """The run has written nothing for this many seconds."""

    seconds: float


Condition = OutputMatches | PortOpen | HttpAnswers | FileExists | OutputIdle


class LineMatched(Struct, frozen=True, kw_only=True, tag="output"):
    condition: OutputMatches
    line: int  # number of the line in the output, from 1
    text: str


class PortOpened(Struct, frozen=True, kw_only=True, tag="port"):
    condition: PortOpen
    pid: int  # process of the run that listens


class HttpAnswered(Struct, frozen=True, kw_only=True, tag="http"):
    condition: HttpAnswers
    status: int
    foreign_pid: int | None = None  # process that answered, when it is not part of the run


class FileFound(Struct, frozen=True, kw_only=True, tag="file"):
    condition: FileExists


class OutputStopped(Struct, frozen=True, kw_only=True, tag="idle"):
    condition: OutputIdle


ConditionMet = LineMatched | PortOpened | HttpAnswered | FileFound | OutputStopped


# Requests to the engine or the warden.


class IdempotencyKey(Struct, frozen=True, kw_only=True):
    """Key of a request that runs once, however often the caller retries it."""

    id: str
    digest: str  # of the plan; the same id with another plan is refused


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
    """Run a plan. The response is its outcome, or `Running` once the wait limit has passed."""

    plan: Plan
    wait_limit: Seconds | None = None  # seconds after the spawn; None: no limit
    workspace: bytes = b""
    number: int | None = None  # number of the run; None: the receiver takes one
    listen: ListenOptions | None = None
    job: bool = False  # the run becomes a background job of its contract when it is detached
    # Limit of live runs: of live jobs when `job` is set. None: no limit.
    max_live: int | None = None
    idempotency_key: IdempotencyKey | None = None
    watched: bool = False  # the client reads the log of the run while it waits
    until: tuple[Condition, ...] = ()  # checked in the calling process, never sent to the warden


class Wait(Struct, frozen=True, kw_only=True, tag="Wait", rename={"wait_limit": "patience"}):
    """Wait until a run has ended, at most for the wait limit."""

    run: str
    workspace: bytes
    wait_limit: Seconds | None = None
    input: bool = False  # also respond when the run waits for input


class Write(Struct, frozen=True, kw_only=True, tag="Write", rename={"wait_for_room": "waits"}):
    """Write these bytes to the run's stdin."""

    run: str
    workspace: bytes
    data: bytes
    eof: bool = False
    wait_for_room: bool = False  # wait while the pipe is full


class Signal(Struct, frozen=True, kw_only=True, tag="Signal"):
    """Send a signal to the process tree of a live run."""

    run: str
    signal: SignalNumber
    workspace: bytes = b""


class End(Struct, frozen=True, kw_only=True, tag="End"):
    """End a run and its process tree: send the signal, and KILL after the grace."""

    run: str
    workspace: bytes
    signal: SignalNumber
    grace: Seconds


# Job requests: a contract's tool `job`, carried out in the calling process.


class Since(Struct, frozen=True, kw_only=True, tag="Since"):
    """The output from this byte on."""

    cursor: int = 0


class Last(Struct, frozen=True, kw_only=True, tag="Last"):
    """The last lines of the output."""

    lines: int


class Between(Struct, frozen=True, kw_only=True, tag="Between"):
    """A range of lines, from 1 and inclusive; `last` None: to the end."""

    first: int = 1
    last: int | None = None


class Matching(Struct, frozen=True, kw_only=True, tag="Matching"):
    """The lines of a range that match, with `context` lines around each."""

    pattern: str
    context: int = 0
    between: Between = Between()


Part = Since | Last | Between | Matching


class ReadOutput(Struct, frozen=True, kw_only=True):
    """Read a part of a run's output."""

    run: str
    part: Part
    max_bytes: int


class ListRuns(Struct, frozen=True, kw_only=True):
    """List the live runs of the workspace, and some that have ended."""

    last: int  # number of ended runs


class WriteInput(Struct, frozen=True, kw_only=True):
    """Write to the stdin of each run."""

    data: bytes
    eof: bool = False


class SendSignal(Struct, frozen=True, kw_only=True):
    """Send a signal to each run's process tree."""

    signal: int


class EndRun(Struct, frozen=True, kw_only=True):
    """End each run and its leftover processes; KILL follows after the grace."""

    signal: int
    grace: float  # seconds


Action = WriteInput | SendSignal | EndRun


REPORT_KEEP = Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB)  # of the output in a report


class Jobs(Struct, frozen=True, kw_only=True):
    """The background jobs of the workspace."""

    only_live: bool = False


class Interact(Struct, frozen=True, kw_only=True):
    """Act on runs, then wait for the first event of any of them, then report them all.

    An event is: a run has ended, waits for input, or meets a condition.
    """

    runs: tuple[str, ...] | Jobs
    action: Action | None = None
    act_on: tuple[str, ...] | None = None  # runs that the action is for; None: all of `runs`
    wait_limit: float = 0.0  # seconds
    until: tuple[Condition, ...] = ()
    input_is_event: bool = True  # a run that waits for input ends the wait
    since: int | None = None  # report output from this byte; None: all, or what follows the action
    keep: Keep = REPORT_KEEP
    skip_unknown: bool = False  # report ids that do not exist; otherwise they are refused
    action_limit: float | None = 5.0  # seconds for an action besides its grace; None: no limit


JobRequest = ReadOutput | ListRuns | Interact


# Responses.


class Done(Struct, frozen=True, kw_only=True, tag="Done"):
    """The request was carried out; `found` False: there is no such live run."""

    found: bool = True


class Running(
    Struct,
    frozen=True,
    kw_only=True,
    tag="Running",
    rename={"waits_for_input": "asks", "met": "fired"},
):
    """The run was detached and is still running."""

    run: str
    pid: int
    seconds: float
    output: Capture  # until now
    log: bytes | None = None  # file that receives the whole output
    waits_for_input: bool = False
    met: ConditionMet | None = None  # set in the calling process, never sent by the warden


class AlreadyStarted(Struct, frozen=True, kw_only=True, tag="Earlier"):
    """An earlier request with the same idempotency key started this run."""

    run: str


class Excerpt(Struct, frozen=True, kw_only=True):
    """A part of a run's output, and its position in the whole."""

    capture: Capture
    line: int = 1  # number of the first line
    byte: int = 0  # offset of the first byte
    complete: bool = True  # the part reaches the end of the output


class MatchedLine(Struct, frozen=True, kw_only=True):
    """A line that matches a pattern, or a context line near one."""

    line: int
    text: str
    matches: bool


class Matches(Struct, frozen=True, kw_only=True):
    """The lines of a run's output that match a pattern."""

    found: tuple[MatchedLine, ...]
    complete: bool  # the whole range was searched
    line: int  # the search stopped before this line


class WaitsForInput(Struct, frozen=True):
    """The run blocks in a read from its stdin."""


class AlreadyEnded(Struct, frozen=True):
    """The run and its process tree had ended before the action."""


Event = WaitsForInput | AlreadyEnded | ConditionMet


class RunProcesses(Struct, frozen=True, kw_only=True):
    """The processes of a run that are worth a line in a report."""

    left_running: tuple[Survivor, ...] = ()
    terminated: tuple[Survivor, ...] = ()  # leftover processes that nacre has ended
    ports: tuple[int, ...] = ()  # TCP ports on which a live run listens


class RunStatus(Struct, frozen=True, kw_only=True):
    """One run, as the store and the kernel know it at this moment."""

    run: str
    command: str
    cwd: str
    seconds: float
    ending: Ending | None  # None: the run is running
    output: Excerpt | Matches
    total: Capture  # counts of the whole output; its bytes are in `output`
    processes: RunProcesses = RunProcesses()
    event: Event | None = None  # why the wait for this run is over, besides its end
    open_stdin: bool = False
    out_of_memory: bool = False  # the kernel killed a process for lack of memory
    stored: bool = True  # the store has the whole output

    @property
    def waits_for_input(self) -> bool:
        return isinstance(self.event, WaitsForInput)

    @property
    def met(self) -> ConditionMet | None:
        return self.event if isinstance(self.event, ConditionMet) else None


class Listing(Struct, frozen=True, kw_only=True):
    """The response to a job request."""

    runs: tuple[RunStatus, ...]
    ended: tuple[str, ...] = ()  # runs that the action has ended
    already_ended: tuple[str, ...] = ()  # runs that had ended before the action
    unknown: tuple[str, ...] = ()  # ids that do not exist


class Rejected(Struct, frozen=True, kw_only=True, tag="No"):
    """The request was not carried out."""

    refusal: AnyRefusal


Request = StartRun | Wait | Write | Signal | End
Result = Outcome | Running | Listing
Response = Outcome | Running | AlreadyStarted | Done | Rejected  # what the warden sends
