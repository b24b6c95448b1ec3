"""Requests to start, read or control runs, and the responses to these requests.

A contract (tool dialect) turns the arguments of a model's tool call into a request. A request to
the warden (nacre's daemon) and its response cross a socket, but a `JobRequest` and its response
`Listing` stay in the calling process. Requests name a run by its id, such as `r17`. A run belongs
to one workspace, and requests from another workspace do not find it.

The encoded names (`tag`, `rename`) must not change, because clients and wardens (nacre's daemons)
of different versions talk to each other.
"""

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct

from nacre.model.caller import ReadPosition
from nacre.model.events import Full
from nacre.model.outcome import Capture, Ending, Outcome, SessionResult, Survivor
from nacre.model.plan import KIB, MIB, Keep, Plan
from nacre.model.refusals import AnyRefusal
from nacre.model.wait_conditions import NO_CONDITIONS, ConditionMet, Conditions

# The decoder checks the ranges of signal numbers and of seconds, because a client may send any
# number.
SignalNumber = Annotated[int, Meta(ge=1, le=64)]
Seconds = Annotated[float, Meta(ge=0)]


class ListenOptions(Struct, frozen=True, kw_only=True):
    """Options for sending a run's output to a listener (callback) in another process; see
    `events.Listening`."""

    buffer: int
    full: Full


# Requests that the engine or the warden (nacre's daemon) carries out.


class IdempotencyKey(Struct, frozen=True, kw_only=True):
    """Key of a request whose command runs only once, even if the caller retries the request."""

    id: str
    # Digest of the request's plan; a retried request with the same key id but another digest is
    # refused.
    digest: str


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
        "until": "conditions",
    },
):
    """Request to run the command that a plan describes. The response to `StartRun` is the outcome,
    or `Running` if the command runs longer than the wait limit."""

    plan: Plan
    # Wait limit: seconds after the spawn until the caller gets the response `Running`; None: no
    # limit.
    wait_limit: Seconds | None = None
    workspace: bytes = b""
    # Number of the new run; None: the receiver of the request chooses a number.
    number: int | None = None
    listen: ListenOptions | None = None
    # Whether a detached run becomes a background job of its contract (tool dialect).
    job: bool = False
    # Maximum number of live runs, or of live background jobs if `job` is set; None: no limit.
    max_live: int | None = None
    idempotency_key: IdempotencyKey | None = None
    watched: bool = False  # whether the client reads the run's output file while it waits
    # Conditions of the argument `until`; the calling process checks them itself and does not send
    # them to the warden (nacre's daemon).
    until: Conditions = NO_CONDITIONS


class Wait(Struct, frozen=True, kw_only=True, tag="Wait", rename={"wait_limit": "patience"}):
    """Request to wait until a run has ended, but at most `wait_limit` seconds."""

    run: str
    workspace: bytes
    wait_limit: Seconds | None = None
    input: bool = False  # whether to stop waiting when the run waits for input on its stdin


class Write(Struct, frozen=True, kw_only=True, tag="Write", rename={"wait_for_room": "waits"}):
    """Request to write bytes to the stdin of a run."""

    run: str
    workspace: bytes
    data: bytes
    eof: bool = False
    wait_for_room: bool = False  # whether to wait while the stdin pipe of the run is full


class Signal(Struct, frozen=True, kw_only=True, tag="Signal"):
    """Request to send a signal to all processes of a live run."""

    run: str
    signal: SignalNumber
    workspace: bytes = b""


class End(Struct, frozen=True, kw_only=True, tag="End"):
    """Request to end a run and its process tree: send the signal, and KILL after `grace`
    seconds."""

    run: str
    workspace: bytes
    signal: SignalNumber
    grace: Seconds
    cancel: bool = False  # whether the ending of the run becomes `Cancelled`


# Job requests: requests of a contract's tool `job`, which the calling process itself carries out.


class Since(Struct, frozen=True, kw_only=True, tag="Since"):
    """Part of a run's output: all bytes from the offset `cursor` on."""

    cursor: int = 0


class Last(Struct, frozen=True, kw_only=True, tag="Last"):
    """Part of a run's output: the last `lines` lines."""

    lines: int


class Between(Struct, frozen=True, kw_only=True, tag="Between"):
    """Part of a run's output: the lines `first` to `last`, counted from 1; `last` None means up to
    the last line."""

    first: int = 1
    last: int | None = None


class Matching(Struct, frozen=True, kw_only=True, tag="Matching"):
    """Part of a run's output: the lines of a range that match a pattern, each with `context` lines
    around it."""

    pattern: str
    context: int = 0
    between: Between = Between()


Part = Since | Last | Between | Matching


class ReadOutput(Struct, frozen=True, kw_only=True):
    """Job request to read a part of a run's output."""

    run: str
    part: Part
    max_bytes: int


class ListRuns(Struct, frozen=True, kw_only=True):
    """Job request to list all live runs of the workspace and the most recent ended runs."""

    last: int  # maximum number of ended runs that the response lists


class WriteInput(Struct, frozen=True, kw_only=True):
    """Action of a job request: write bytes to the stdin of each selected run."""

    data: bytes
    eof: bool = False


class SendSignal(Struct, frozen=True, kw_only=True):
    """Action of a job request: send a signal to all processes of each selected run."""

    signal: int


class EndRun(Struct, frozen=True, kw_only=True):
    """Action of a job request: end each selected run and its leftover processes, with KILL after
    `grace` seconds."""

    signal: int
    grace: float  # seconds between `signal`, the first signal to the run, and KILL
    cancel: bool = False  # whether the ending of each run becomes `Cancelled`


Action = WriteInput | SendSignal | EndRun


# How much output the status of a run contains by default: all of it or, if the output is long, its
# head and its tail.
REPORT_KEEP = Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB)


class Jobs(Struct, frozen=True, kw_only=True):
    """Selection of all background jobs of the workspace for a job request."""

    only_live: bool = False


class Interact(Struct, frozen=True, kw_only=True):
    """Job request to act on runs, then wait for the first event of any of these runs, then report
    them all.

    An event is the end of a run, a run's wait for input, or a condition that a run meets.
    """

    runs: tuple[str, ...] | Jobs
    action: Action | None = None
    # Ids of the runs on which the job request carries out its action; None: all runs of the job
    # request.
    act_on: tuple[str, ...] | None = None
    wait_limit: float = 0.0  # maximum seconds to wait for the first event of any of the runs
    until: Conditions = NO_CONDITIONS
    input_is_event: bool = True  # whether the request stops waiting when a run waits for input
    # Offset of the first output byte to report. None: start at the read position of the run. For a
    # run without one, start at 0, or at the action for a signal. If `read_position` is None, start
    # at the action.
    since: int | None = None
    # Function that returns, for the id of a run, how far replies have reported the run to the
    # caller, or None if no reply was about the run. None: positions are not used.
    read_position: Callable[[str], ReadPosition | None] | None = None
    all: bool = False  # whether to wait for an event of every run instead of the first event
    keep: Keep = REPORT_KEEP
    # Whether run ids that do not exist are only listed in the response; False: they make the
    # request fail.
    skip_unknown: bool = False
    # Maximum seconds for carrying out `action` on all runs; None: no limit. For the action
    # `EndRun`, its grace (seconds from the first signal to KILL) is added to `action_limit`.
    action_limit: float | None = 5.0
    # Whether a cancelled request still reports its runs; False: a cancelled request is rejected.
    report_when_cancelled: bool = False


class ManageSessions(Struct, frozen=True, kw_only=True):
    """Job request to list the sessions of the workspace, after resetting or removing one of them by
    name."""

    reset: str | None = None
    remove: str | None = None


JobRequest = ReadOutput | ListRuns | Interact | ManageSessions


# Responses.


class Done(Struct, frozen=True, kw_only=True, tag="Done"):
    """Response: the request was carried out, or, if `found` is False, there is no live run with the
    requested id."""

    found: bool = True


class Activity(Struct, frozen=True, kw_only=True):
    """What the processes of a live run do, from the kernel."""

    pid: int  # pid of the run's shell, or of another process of the run if the shell has exited
    processes: int
    cpu_seconds: float  # CPU time of the live processes and of their children that were reaped
    # Seconds since the run last wrote output; None: the run has written nothing.
    idle_seconds: float | None = None
    ports: tuple[int, ...] = ()  # TCP ports on which the processes listen
    stopped: bool = False  # whether all processes were stopped, for example by SIGSTOP


class Running(
    Struct,
    frozen=True,
    kw_only=True,
    tag="Running",
    rename={"waits_for_input": "asks", "met": "fired"},
):
    """Response: the run was detached (it continues without its caller) and is still running."""

    run: str
    pid: int
    seconds: float
    output: Capture  # output of the run until now
    log: bytes | None = None  # path of the file that receives the run's whole output
    waits_for_input: bool = False
    # The `until` condition that the run has met; None: no condition was met. The calling process
    # sets `met`; the warden (nacre's daemon) never sends it.
    met: ConditionMet | None = None
    input_lines: int = 0  # number of lines that were written to the run's stdin so far
    # Whether a shell waits for input, not another program.
    shell_reads: bool = False
    # Content of the script file that the reading shell executes; None: it executes no file.
    shell_script: bytes | None = None
    # Whether the run is queued: its shell is not spawned yet.
    queued: bool = False
    queued_behind: str = ""  # id of the run whose session or lane the queued run waits for
    activity: Activity | None = None  # set by the calling process, never sent by the warden


class AlreadyStarted(Struct, frozen=True, kw_only=True, tag="Earlier"):
    """Response: an earlier request with the same idempotency key has already started this run."""

    run: str


class Excerpt(Struct, frozen=True, kw_only=True):
    """Part of a run's output, with its position in the whole output."""

    capture: Capture
    line: int = 1  # number, in the run's whole output, of the excerpt's first line, counted from 1
    byte: int = 0  # offset, in the run's whole output, of the excerpt's first byte
    complete: bool = True  # False: a size limit ended the excerpt before the end of the output


class MatchedLine(Struct, frozen=True, kw_only=True):
    """Line of a run's output that matches a pattern, or a context line near a matching line."""

    line: int
    text: str
    matches: bool


class Matches(Struct, frozen=True, kw_only=True):
    """Lines of a run's output that match a pattern, with context lines."""

    found: tuple[MatchedLine, ...]
    complete: bool  # whether the whole requested range of lines was searched
    line: int  # number of the first line that was not searched


class WaitsForInput(Struct, frozen=True, kw_only=True):
    """Event: the run blocks in a read from its stdin."""

    lines: int = 0  # number of lines that were written to the run's stdin so far
    by_shell: bool = False  # whether a shell reads, not another program
    # Content of the script file that the reading shell executes; None: the shell executes the
    # script of the command itself, or a part of it.
    script_file: bytes | None = None


def input_wait(running: Running) -> WaitsForInput:
    """Return the event of a run that waits for input."""
    return WaitsForInput(
        lines=running.input_lines,
        by_shell=running.shell_reads,
        script_file=running.shell_script,
    )


class AlreadyEnded(Struct, frozen=True):
    """Event: the run and all its processes had already ended before the job request acted on the
    run."""


Event = WaitsForInput | AlreadyEnded | ConditionMet


class RunProcesses(Struct, frozen=True, kw_only=True):
    """Processes that outlived the shell of a run, for the report on the run's status."""

    left_running: tuple[Survivor, ...] = ()
    # Processes that outlived the run's shell and that nacre ended.
    terminated: tuple[Survivor, ...] = ()


class RunStatus(Struct, frozen=True, kw_only=True):
    """Status of one run at this moment, from the store (nacre's files on disk) and from the
    kernel."""

    run: str
    command: str
    cwd: str
    seconds: float
    ending: Ending | None  # how the run ended; None: the run is still running
    output: Excerpt | Matches
    total: Capture  # whole output of the run; replies use only its size, line count and saved file
    processes: RunProcesses = RunProcesses()
    # Event, other than the end of the run, that ended the wait for this run.
    event: Event | None = None
    open_stdin: bool = False
    # Whether the kernel killed the run's shell for lack of memory.
    out_of_memory: bool = False
    stored: bool = True  # whether the store (nacre's files on disk) has the whole output
    activity: Activity | None = None  # None: the run has ended, is queued, or was not inspected
    queued: bool = False
    queued_behind: str = ""
    # Seconds until the run reaches its timeout; None: the run has ended, or has no timeout.
    timeout_in: float | None = None
    session: SessionResult | None = None  # None: the run has no session, or has not ended
    session_taken_from: str = ""  # as in `Outcome`
    session_errexit: bool = False  # as in `Outcome`
    pipelines: tuple[tuple[int, ...], ...] = ()  # as in `Outcome`

    @property
    def waits_for_input(self) -> bool:
        return isinstance(self.event, WaitsForInput)

    @property
    def met(self) -> ConditionMet | None:
        return self.event if isinstance(self.event, ConditionMet) else None


class SessionStatus(Struct, frozen=True, kw_only=True):
    """One session of the workspace."""

    name: str
    cwd: str
    idle_seconds: float  # seconds since the session was last used


class Listing(Struct, frozen=True, kw_only=True):
    """Response to a job request, with the status of each run."""

    runs: tuple[RunStatus, ...]
    ended: tuple[str, ...] = ()  # ids of the runs that the action of the request has ended
    # Ids of the runs that had already ended before the job request acted on them.
    already_ended: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # requested run ids that do not exist
    # Sessions of the workspace; None: the request was about runs.
    sessions: tuple[SessionStatus, ...] | None = None


class Rejected(Struct, frozen=True, kw_only=True, tag="No"):
    """Response: the request was not carried out, for the reason in `refusal`."""

    refusal: AnyRefusal


Request = StartRun | Wait | Write | Signal | End
Result = Outcome | Running | Listing
# Responses that the warden (nacre's daemon) sends.
Response = Outcome | Running | AlreadyStarted | Done | Rejected
