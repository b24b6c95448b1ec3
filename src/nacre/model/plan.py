"""The plan: frozen values that describe one command before it runs.

A contract builds a `Plan` from a model's arguments. The steps in `prepare` may change or refuse the
plan. The engine then runs the plan. Script, directory and environment are bytes, as in the kernel.
"""

import enum
from typing import Annotated, Final

from msgspec import Meta, Struct

from nacre.model.findings import AnyFinding
from nacre.model.outcome import Ending, Exited, Lost, NotStarted, ending_signal, exit_status
from nacre.model.signals import signal_name

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

BASH: Final = b"/bin/bash"


class Streams(enum.Enum):
    """Whether the command's stdout and stderr share one pipe."""

    MERGED = "merged"  # one pipe: the output keeps the order of the writes
    SEPARATE = "separate"  # two pipes: no order between stdout and stderr


Limit = Annotated[int, Meta(ge=-1, le=2**63 - 1)]  # resource limit; -1: unlimited


class CallerLimits(Struct, frozen=True, kw_only=True):
    """Umask and resource limits of the caller, for a command that the warden starts."""

    umask: Annotated[int, Meta(ge=0, le=0o777)]
    limits: tuple[tuple[Limit, Limit], ...]  # (soft, hard) pairs, indexed by resource number


class Command(
    Struct,
    frozen=True,
    kw_only=True,
    rename={
        "original": "given",
        "cwd_given": "placed",
        "call_env": "extra",
        "caller_limits": "terms",
    },
):
    """Shell script with its working directory and its environment."""

    original: bytes  # script as the caller wrote it
    script: bytes  # script as bash gets it
    cwd: bytes
    cwd_given: bool = False  # whether the call itself names the working directory
    env: dict[bytes, bytes] | None = None  # environment for the command; None: that of this process
    call_env: dict[bytes, bytes] = {}  # variables given in the call itself; never filtered
    caller_limits: CallerLimits | None = None  # resource limits; None: the limits of this process


class Limits(Struct, frozen=True, kw_only=True, rename={"kill_wait": "surrender"}):
    """Time limits of a run, in seconds.

    The clocks start at the spawn, not when the run enters the queue.
    """

    timeout: float | None = None
    grace: float = 2.0  # seconds between TERM and KILL, for the whole process tree
    drain: float = 0.1  # seconds to read a pipe that is still open after the shell's exit
    kill_wait: float = 2.0  # seconds after KILL until surviving processes are reported

    def __post_init__(self) -> None:
        for name in ("timeout", "grace", "drain", "kill_wait"):
            value = getattr(self, name)
            if not (value is None and name == "timeout") and not value >= 0:
                raise ValueError(f"a {name} of {value} seconds is not possible; give 0 or more")


class Keep(Struct, frozen=True, kw_only=True):
    """Amount of a stream that is kept in memory, in raw bytes.

    A stream of at most `whole` bytes is kept completely. Of a longer stream only the first `head`
    bytes and the last `tail` bytes are kept.
    """

    whole: int
    head: int
    tail: int

    def __post_init__(self) -> None:
        if min(self.whole, self.head, self.tail) < 0 or self.head > self.whole:
            raise ValueError(
                f"{self} is not possible: sizes are 0 or more, and head is at most whole"
            )


class When(enum.Enum):
    OVERFLOW = "overflow"  # the spill file is written only when memory cannot keep the whole stream
    ALWAYS = "always"


class AtLimit(enum.Enum):
    """What happens to a command whose output exceeds the disk limit."""

    GO_ON = "go on"  # the command continues; further output is only counted
    CLOSE = "close"  # the output pipe is closed, as when the reader of a pipeline exits
    STOP = "stop"  # the whole process tree is stopped


class Spill(Struct, frozen=True, kw_only=True):
    """Private file that holds a complete stream, up to a limit on disk.

    A write error is reported and does not affect the command.
    """

    directory: bytes | None = None  # None: the system's directory for temporary files
    when: When = When.OVERFLOW
    limit: int = 4 * GIB
    then: AtLimit = AtLimit.GO_ON

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError(f"a spill limit of {self.limit} bytes is not possible; give 0 or more")


class MakeDirectory(Struct, frozen=True, kw_only=True, tag="MakeDirectory"):
    """Chore: create a directory in the store, with its parents, for a command to write into."""

    path: bytes


class MakeFile(Struct, frozen=True, kw_only=True, tag="MakeFile"):
    """Chore: create a private file for a command to read. An existing file is left unchanged."""

    path: bytes
    data: bytes


class LeftoverPolicy(enum.Enum):
    """What happens to the processes that still run when their shell exits."""

    KEEP = "keep"  # leftover processes keep running, as in any shell; the outcome lists them
    END = "end"  # leftover processes are stopped when the shell exits


Chore = MakeDirectory | MakeFile  # work that the engine does before the spawn


class OpenStdin(Struct, frozen=True, kw_only=True, tag="Held", rename={"initial": "first"}):
    """Stdin that stays open. The initial bytes come first, then all bytes written to the run."""

    initial: bytes = b""


class CompletionLine(Struct, frozen=True, kw_only=True):
    """Text that nacre appends to the output file when the shell has ended.

    The text is not output, so it is not shown when the run is read by its id. Placeholders in
    braces are replaced by values that are known only at the end.
    """

    zero: str
    exited: str  # text after a non-zero exit code; placeholder: {code}
    killed: str  # text after death by a signal; placeholders: {number}, {name}
    error: str  # text after any other ending; placeholder: {why}

    def text_of(self, ending: Ending) -> str:
        if ending == Exited(0):
            return self.zero
        if (signal := ending_signal(ending)) is not None:
            text = self.killed.replace("{number}", str(signal))
            return text.replace("{name}", signal_name(signal))
        if (code := exit_status(ending)) is not None:
            return self.exited.replace("{code}", str(code))
        match ending:
            case NotStarted(why=refusal):
                why = str(refusal)
            case Lost():
                why = "the process that ran it was killed; its exit code is unknown"
            case _:
                why = "a process could not be killed"
        return self.error.replace("{why}", why)


class Session(
    Struct,
    frozen=True,
    kw_only=True,
    rename={
        "workspace_key": "place",
        "cwd_when_decided": "stood",
        "detached": "apart",
        "setup_signature": "setup",
    },
):
    """Session in which a command runs."""

    workspace_key: str = ""  # key of the workspace that the session belongs to
    key: str  # key of the session within its workspace
    name: str = ""  # name chosen by the user; empty: private to one caller
    contract: str = ""
    cwd_when_decided: bytes = b""  # the session's directory when the plan was made
    detached: bool = False  # whether the command uses the session's state without changing it
    setup_signature: str = ""  # snapshot of the user's set-up for a new session; empty: none


class Plan(
    Struct, frozen=True, kw_only=True, rename={"completion_line": "epitaph", "leftovers": "leave"}
):
    """One command with every decision about how to run it."""

    command: Command
    shell: bytes = BASH
    streams: Streams = Streams.MERGED
    limits: Limits = Limits()
    keep: Keep = Keep(whole=MIB, head=256 * KIB, tail=768 * KIB)
    spill: Spill | None = None
    stdin: bytes | OpenStdin | None = None  # input of the command; None: /dev/null
    completion_line: CompletionLine | None = None
    leftovers: LeftoverPolicy = LeftoverPolicy.KEEP
    session: Session | None = None
    lane: str | None = None  # runs in the same lane execute one at a time, in order
    chores: tuple[Chore, ...] = ()
    findings: tuple[AnyFinding, ...] = ()  # findings that the steps noted
