"""What happened: how a command ended, what it printed, what it left behind.

An `Outcome` is complete and frozen; whatever happens to a command is one of these, with the
output it had. `Ending` is written once, by whoever came first: the command itself, its
deadline, or a cancel.
"""

from msgspec import Struct

from nacre.model.refusals import AnyRefusal


class Exited(Struct, frozen=True, tag="Exited"):
    """It ended by itself."""

    code: int


class Killed(Struct, frozen=True, tag="Killed"):
    """A signal ended it; only said when the kernel says so, never inferred from 128+n."""

    signal: int


How = Exited | Killed | None  # None: it could not be killed, or the kernel would not tell


class TimedOut(Struct, frozen=True, tag="TimedOut"):
    """It lived longer than `after` seconds and was stopped; `how` is what followed."""

    after: float
    how: How


class Cancelled(Struct, frozen=True, tag="Cancelled"):
    """It was stopped because the caller no longer wanted it; `how` is what followed."""

    how: How


class NotStarted(Struct, frozen=True, tag="NotStarted"):
    """Nothing ran."""

    why: AnyRefusal


class Lost(Struct, frozen=True, tag="Lost"):
    """It ended, but somebody else collected its status; `last_seen` is seconds after the spawn."""

    last_seen: float


Ending = Exited | Killed | TimedOut | Cancelled | NotStarted | Lost


def ending_state(ending: Ending | None) -> str:
    """In one word; None is a run that has not ended."""
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
    """As a shell would show it: 128+n for a signal; None when nothing ran or it is not known."""
    if isinstance(ending, Exited):
        return ending.code
    signal = ending_signal(ending)
    return exit_status(ending) if signal is None else 128 + signal


def exit_status(ending: Ending | None) -> int | None:
    """What the shell itself exited with; None also when a signal ended it."""
    match ending:
        case Exited(code) | TimedOut(how=Exited(code)) | Cancelled(how=Exited(code)):
            return code
        case _:
            return None


def ending_signal(ending: Ending | None) -> int | None:
    """The signal that ended the shell, if one did."""
    match ending:
        case Killed(signal) | TimedOut(how=Killed(signal)) | Cancelled(how=Killed(signal)):
            return signal
        case _:
            return None


class Saved(Struct, frozen=True, kw_only=True, rename={"hidden": "marks"}):
    """The file that a stream was spilled to."""

    path: bytes | None  # None: no file could be made
    size: int  # bytes in it
    complete: bool  # it holds every byte of the stream
    problem: str | None = None  # why it does not, as a sentence
    hidden: tuple[tuple[int, int], ...] = ()  # where it has words of ours: from, to

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """The name that `hidden` had in 0.1.0."""
        return self.hidden


class Capture(Struct, frozen=True, kw_only=True):
    """What a stream said: its first and last bytes, with exact counts of all of it."""

    head: bytes = b""  # everything, when nothing was left out
    tail: bytes = b""  # what follows the gap; empty when there is none
    size: int = 0
    newlines: int = 0
    unterminated: bool = False  # the last line has no newline (yet)
    saved: Saved | None = None

    @property
    def omitted(self) -> int:
        """How many bytes are between head and tail."""
        return self.size - len(self.head) - len(self.tail)

    @property
    def lines(self) -> int:
        """How many lines, an unterminated last one included."""
        return self.newlines + self.unterminated


class Survivor(Struct, frozen=True, kw_only=True):
    """A process that a command left running; pid and start time together are its identity."""

    pid: int
    started: int  # clock ticks after boot, as in /proc/PID/stat
    command: str
    ports: tuple[int, ...] = ()  # on which it listens


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
    """Everything there is to know about a command that has ended."""

    run: str
    ending: Ending
    output: Capture  # stdout; or both, in the order of writing, when merged
    errors: Capture | None = None  # stderr, when separate
    seconds: float = 0.0
    left_running: tuple[Survivor, ...] = ()
    terminated: tuple[Survivor, ...] = ()  # what it would have left running, but for the plan
    out_of_memory: bool = False  # the kernel has killed something here while it ran
    stored: bool = False  # all of its output can be read later, by its number
    session_saved: bool | None = (
        None  # its session knows what it did to its shell; None: it had no session
    )
    previous_state_lost: bool = (
        False  # nor does that know what the one before it did, though that was said
    )
    session_problem: str = ""  # why there was none, though it should have had one

    @property
    def exit_code(self) -> int | None:
        """As a shell would show it: 128+n for a signal; None when nothing ran or nobody knows."""
        return ending_code(self.ending)

    @property
    def signal(self) -> int | None:
        """The signal that ended the shell, if one did."""
        return ending_signal(self.ending)

    # The names that these fields had in 0.1.0.

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
