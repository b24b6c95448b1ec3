"""How a command ended, what it wrote, and what it left running.

An `Outcome` is complete and frozen. Every command that nacre was asked to run gets one, with the
output that it had. Its `ending` is written once, by the first trigger: the exit of the shell, the
timeout, or a cancel.

Encoded names (`tag`, `rename`) are fixed: clients and wardens of different versions talk to each
other.
"""

from msgspec import Struct

from nacre.model.refusals import AnyRefusal


class Exited(Struct, frozen=True, tag="Exited"):
    """The shell exited."""

    code: int


class Killed(Struct, frozen=True, tag="Killed"):
    """A signal ended the shell. The kernel reports this; it is never inferred from 128+n."""

    signal: int


How = Exited | Killed | None  # None: the shell could not be killed, or its status is unknown


class TimedOut(Struct, frozen=True, tag="TimedOut"):
    """The run was stopped after its timeout of `after` seconds; `how` is how the shell ended."""

    after: float
    how: How


class Cancelled(Struct, frozen=True, tag="Cancelled"):
    """The run was stopped at the caller's request; `how` is how the shell ended."""

    how: How


class NotStarted(Struct, frozen=True, tag="NotStarted"):
    """The command was not started."""

    why: AnyRefusal


class Lost(Struct, frozen=True, tag="Lost"):
    """The run has ended, and its exit status is unknown. `last_seen`: seconds after the spawn."""

    last_seen: float


Ending = Exited | Killed | TimedOut | Cancelled | NotStarted | Lost


def ending_state(ending: Ending | None) -> str:
    """Return the ending as one word; None is a run that has not ended."""
    return "running" if ending is None else _STATES[type(ending)]


_STATES: dict[type, str] = {
    Exited: "exited",
    Killed: "killed",
    TimedOut: "timed_out",
    Cancelled: "cancelled",
    NotStarted: "not_started",
    Lost: "lost",
}


def ending_code(ending: Ending | None) -> int | None:
    """Return the exit code as a shell shows it: 128+n for a signal, None when it is unknown."""
    if isinstance(ending, Exited):
        return ending.code
    signal = ending_signal(ending)
    return exit_status(ending) if signal is None else 128 + signal


def exit_status(ending: Ending | None) -> int | None:
    """Return the exit status of the shell; None also when a signal ended it."""
    match ending:
        case Exited(code) | TimedOut(how=Exited(code)) | Cancelled(how=Exited(code)):
            return code
        case _:
            return None


def ending_signal(ending: Ending | None) -> int | None:
    """Return the signal that ended the shell, or None."""
    match ending:
        case Killed(signal) | TimedOut(how=Killed(signal)) | Cancelled(how=Killed(signal)):
            return signal
        case _:
            return None


class Saved(Struct, frozen=True, kw_only=True, rename={"hidden": "marks"}):
    """The spill file of one stream."""

    path: bytes | None  # None: the file could not be created
    size: int  # bytes
    complete: bool  # the file has every byte of the stream
    problem: str | None = None  # why the file is incomplete, as a sentence
    hidden: tuple[tuple[int, int], ...] = ()  # byte ranges that nacre wrote itself

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """Name of `hidden` in version 0.1.0."""
        return self.hidden


class Capture(Struct, frozen=True, kw_only=True):
    """What is kept of one stream: its first and last bytes, and exact counts of the whole."""

    head: bytes = b""  # the whole stream, when nothing was omitted
    tail: bytes = b""  # bytes after the gap; empty when there is no gap
    size: int = 0  # bytes of the whole stream
    newlines: int = 0  # in the whole stream
    unterminated: bool = False  # the last line has no newline
    saved: Saved | None = None

    @property
    def omitted(self) -> int:
        """Bytes between head and tail."""
        return self.size - len(self.head) - len(self.tail)

    @property
    def lines(self) -> int:
        """Number of lines, with an unterminated last line."""
        return self.newlines + self.unterminated


class Survivor(Struct, frozen=True, kw_only=True):
    """A leftover process; its pid and start time together identify it."""

    pid: int
    started: int  # clock ticks after boot, as in /proc/PID/stat
    command: str
    ports: tuple[int, ...] = ()  # TCP ports on which it listens


class SessionSaved(Struct, frozen=True, kw_only=True):
    """The session has the state in which the command left its shell."""

    # The state after the previous command was lost, although the reply to it said it was saved.
    previous_state_lost: bool = False


class SessionNotSaved(Struct, frozen=True, kw_only=True):
    """The session has the state from before the command."""

    previous_state_lost: bool = False


class SessionUnavailable(Struct, frozen=True):
    """The command ran without the session that it should have had."""

    problem: str  # a sentence


SessionResult = SessionSaved | SessionNotSaved | SessionUnavailable


class Outcome(
    Struct,
    frozen=True,
    kw_only=True,
    tag="Outcome",
    rename={
        "terminated": "put_down",
        "session_saved": "kept",
        "previous_state_lost": "forgot",
        "session_problem": "unkept",
    },
):
    """The result of a command that has ended."""

    run: str
    ending: Ending
    output: Capture  # stdout; with merged streams also stderr, in the order of writing
    errors: Capture | None = None  # stderr, with separate streams
    seconds: float = 0.0
    left_running: tuple[Survivor, ...] = ()
    terminated: tuple[Survivor, ...] = ()  # leftover processes that the plan told nacre to end
    out_of_memory: bool = False  # the kernel killed the shell for lack of memory
    stored: bool = False  # the store has the output
    # Encoded form of `session`.
    session_saved: bool | None = None
    previous_state_lost: bool = False
    session_problem: str = ""

    @property
    def session(self) -> SessionResult | None:
        """What the session knows of the command; None for a command without a session."""
        if self.session_saved is None:
            return None
        if self.session_problem:
            return SessionUnavailable(self.session_problem)
        kind = SessionSaved if self.session_saved else SessionNotSaved
        return kind(previous_state_lost=self.previous_state_lost)

    @property
    def exit_code(self) -> int | None:
        """Exit code as a shell shows it: 128+n for a signal, None when it is unknown."""
        return ending_code(self.ending)

    @property
    def signal(self) -> int | None:
        """Signal that ended the shell, or None."""
        return ending_signal(self.ending)

    # Names of fields in version 0.1.0.

    @property
    def put_down(self) -> tuple[Survivor, ...]:
        return self.terminated

    @property
    def kept(self) -> bool | None:
        return self.session_saved

    @property
    def forgot(self) -> bool:
        return self.previous_state_lost

    @property
    def unkept(self) -> str:
        return self.session_problem
