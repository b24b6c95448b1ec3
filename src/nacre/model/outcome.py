"""`Outcome`: how a command ended, what it wrote, and which processes it left running.

Every command that nacre was asked to run gets one complete and immutable `Outcome`, with the output
that the command wrote. The field `ending` of an `Outcome` says what ended the command first: the
exit of the shell, the timeout, or a cancel.

The names given by `tag` and `rename` are part of the encoded data and must not change, because
clients and wardens (nacre's daemons) of different versions exchange this data.
"""

from typing import Literal

from msgspec import Struct

from nacre.model.refusals import AnyRefusal
from nacre.model.wait_conditions import ConditionMet


class Exited(Struct, frozen=True, tag="Exited"):
    """Ending of a run whose shell exited with the status `code`."""

    code: int


class Killed(Struct, frozen=True, tag="Killed"):
    """Ending of a run whose shell was killed by a signal. A signal is reported only if the kernel
    reports it, and is never inferred from an exit status of 128+n."""

    signal: int


# How the shell ended; None: it could not be killed, or its status is unknown.
How = Exited | Killed | None


class TimedOut(Struct, frozen=True, tag="TimedOut"):
    """Ending of a run that was stopped after its timeout of `after` seconds; `how` says how its
    shell ended."""

    after: float
    how: How


class Cancelled(Struct, frozen=True, tag="Cancelled"):
    """Ending of a run that was stopped at the caller's request; `how` says how its shell ended."""

    how: How


class NotStarted(Struct, frozen=True, tag="NotStarted"):
    """Ending of a command that was never started, for the reason in `why`."""

    why: AnyRefusal


class Lost(Struct, frozen=True, tag="Lost"):
    """Ending of a run whose exit status is unknown; `last_seen` is how many seconds after the spawn
    the run was last known to run."""

    last_seen: float


Ending = Exited | Killed | TimedOut | Cancelled | NotStarted | Lost


def ending_state(ending: Ending | None) -> str:
    """Return how a run ended as one word, such as `exited`; for None (no ending yet), return
    `running`."""
    return "running" if ending is None else _STATES[type(ending)]


_STATES: dict[type, str] = {
    Exited: "exited",
    Killed: "killed",
    TimedOut: "timed_out",
    Cancelled: "cancelled",
    NotStarted: "not_started",
    Lost: "lost",
}


JobState = Literal["completed", "failed", "cancelled"]


def job_state(ending: Ending) -> JobState:
    """Return how a background job ended, in the words of the `pi` contract."""
    if isinstance(ending, Cancelled):
        return "cancelled"
    return "completed" if ending == Exited(0) else "failed"


def ending_code(ending: Ending | None) -> int | None:
    """Return the exit code of a run as a shell shows it: 128+n after signal n, None if it is
    unknown."""
    if isinstance(ending, Exited):
        return ending.code
    signal = ending_signal(ending)
    return exit_status(ending) if signal is None else 128 + signal


def exit_status(ending: Ending | None) -> int | None:
    """Return the exit status of the run's shell, or None if it is unknown or a signal ended the
    shell."""
    match ending:
        case Exited(code) | TimedOut(how=Exited(code)) | Cancelled(how=Exited(code)):
            return code
        case _:
            return None


def ending_signal(ending: Ending | None) -> int | None:
    """Return the number of the signal that ended the run's shell, or None if no signal ended it."""
    match ending:
        case Killed(signal) | TimedOut(how=Killed(signal)) | Cancelled(how=Killed(signal)):
            return signal
        case _:
            return None


class Saved(Struct, frozen=True, kw_only=True, rename={"hidden": "marks"}):
    """Spill file: the file that holds the complete output of one stream of a command."""

    path: bytes | None  # path of the spill file; None: the file could not be created
    size: int  # size of the stored output, in bytes
    complete: bool  # whether the spill file has every byte of the stream
    problem: str | None = None  # sentence that says why the spill file is incomplete
    # Byte ranges of the spill file that contain text written by nacre, not output of the command.
    hidden: tuple[tuple[int, int], ...] = ()

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """Old name of the field `hidden`, as in nacre 0.1.0."""
        return self.hidden


class Capture(Struct, frozen=True, kw_only=True):
    """Captured part of one output stream: its first and last bytes, and exact counts of the whole
    stream."""

    head: bytes = b""  # first bytes of the stream; all bytes, if nothing was omitted
    tail: bytes = b""  # last bytes of the stream; empty if nothing was omitted
    size: int = 0  # size of the whole stream, in bytes
    newlines: int = 0  # number of newlines in the whole stream
    unterminated: bool = False  # whether the last line of the stream has no newline
    saved: Saved | None = None

    @property
    def omitted(self) -> int:
        """Number of bytes between `head` and `tail` that were not captured."""
        return self.size - len(self.head) - len(self.tail)

    @property
    def lines(self) -> int:
        """Number of lines in the stream, including a last line without a newline."""
        return self.newlines + self.unterminated


class Survivor(Struct, frozen=True, kw_only=True):
    """Leftover process: it was still running when its run's shell exited, and its pid and start
    time identify it."""

    pid: int
    started: int  # start time of the process in clock ticks after boot, as in /proc/PID/stat
    command: str
    ports: tuple[int, ...] = ()  # TCP ports on which the process listens


class SessionSaved(Struct, frozen=True, kw_only=True):
    """Result for a command's session: the session saved the state in which the command left its
    shell."""

    # Whether the state from the session's previous command was lost, although the reply to that
    # command had reported the state as saved.
    previous_state_lost: bool = False


class SessionNotSaved(Struct, frozen=True, kw_only=True):
    """Result for a command's session: the session still has the state from before the command."""

    previous_state_lost: bool = False


class SessionTaken(Struct, frozen=True):
    """Result for a detached command's session: the session keeps the state of a later command,
    which had used the session before the detached command ended."""


class SessionUnavailable(Struct, frozen=True):
    """Result for a command that ran without the session in which it should have run."""

    problem: str  # sentence that says why the session could not be used


SessionResult = SessionSaved | SessionNotSaved | SessionTaken | SessionUnavailable


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
        "session_moved": "moved",
    },
):
    """Result of a command that has ended, or that could not be started."""

    run: str
    ending: Ending
    output: Capture  # captured stdout; with merged streams also stderr, in the order of writing
    errors: Capture | None = None  # captured stderr; None: stdout and stderr were merged
    seconds: float = 0.0
    left_running: tuple[Survivor, ...] = ()
    # Processes that still ran when the shell exited, and that nacre stopped, because the plan does
    # not allow leftover processes.
    terminated: tuple[Survivor, ...] = ()
    out_of_memory: bool = False  # whether the kernel killed the shell for lack of memory
    stored: bool = False  # whether the store (nacre's files on disk) has the output
    # The fields `session_saved`, `previous_state_lost` and `session_problem` are the encoded form
    # of the property `session`.
    session_saved: bool | None = None
    previous_state_lost: bool = False
    session_problem: str = ""
    # If the directory of the session could not be entered: that directory, and the nearest parent
    # directory, in which the command started; else None.
    session_moved: tuple[bytes, bytes] | None = None
    # Whether the command was detached and a later command had used its session when it ended.
    session_taken: bool = False
    # Id of the detached run whose state the session does not keep, because this command used the
    # session before that run had ended; else empty.
    session_taken_from: str = ""
    # Whether the session had `set -e` on when the command started, and no earlier reply said so.
    session_errexit: bool = False
    # For each pipeline of the script that was watched, the exit statuses of its stages; an empty
    # tuple for a pipeline that did not run or in which no stage failed. Empty: no stage failed.
    pipelines: tuple[tuple[int, ...], ...] = ()
    # The `until` condition that was met after the shell had exited, or before a call ended the run
    # because of it; set by the calling process, never sent by the warden.
    met: ConditionMet | None = None

    @property
    def session(self) -> SessionResult | None:
        """Result of the command for its session: saved, not saved or unavailable; None for a
        command without a session."""
        if self.session_saved is None:
            return None
        if self.session_problem:
            return SessionUnavailable(self.session_problem)
        if self.session_taken:
            return SessionTaken()
        kind = SessionSaved if self.session_saved else SessionNotSaved
        return kind(previous_state_lost=self.previous_state_lost)

    @property
    def exit_code(self) -> int | None:
        """Exit code of the command as a shell shows it: 128+n after signal n, None if it is
        unknown."""
        return ending_code(self.ending)

    @property
    def signal(self) -> int | None:
        """Number of the signal that ended the command's shell, or None if no signal ended it."""
        return ending_signal(self.ending)

    # Properties with the names that some fields had in nacre 0.1.0.

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
