"""`Plan`: immutable description of one command before the command runs.

A contract (tool dialect) builds a `Plan` from the arguments of a model's tool call. The steps in
`prepare` may change or refuse a plan before the engine runs it. The script, directory and
environment of a plan are bytes, as in the kernel.
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

    MERGED = "merged"  # stdout and stderr share one pipe, which keeps the order of the writes
    SEPARATE = "separate"  # stdout and stderr have one pipe each, without an order between them


Limit = Annotated[int, Meta(ge=-1, le=2**63 - 1)]  # value of a resource limit; -1: unlimited


class CallerLimits(Struct, frozen=True, kw_only=True):
    """Umask and resource limits of the calling process, for a command that the warden (nacre's
    daemon) starts."""

    umask: Annotated[int, Meta(ge=0, le=0o777)]
    # (soft, hard) pairs of resource limits, indexed by the number of the resource.
    limits: tuple[tuple[Limit, Limit], ...]


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
    """Shell script of a plan, with its working directory and its environment."""

    original: bytes  # script as the caller wrote it
    script: bytes  # script as bash runs it, after the changes by the preparation steps
    # The script with code of nacre that reports how its pipelines have exited; bash gets this text
    # in place of `script`. Empty: bash gets `script`. The engine sets it right before the spawn.
    reporting_script: bytes = b""
    cwd: bytes
    cwd_given: bool = False  # whether the tool call itself names the working directory
    # Environment for the command; None: the environment of this process.
    env: dict[bytes, bytes] | None = None
    # Environment variables from the tool call itself, which are never filtered.
    call_env: dict[bytes, bytes] = {}
    # Umask and resource limits for the command; None: the limits of this process.
    caller_limits: CallerLimits | None = None


class Limits(Struct, frozen=True, kw_only=True, rename={"kill_wait": "surrender"}):
    """Time limits of a run, in seconds; the time that a run waits in the queue does not count."""

    timeout: float | None = None
    grace: float = 2.0  # seconds between TERM and KILL when the whole process tree is stopped
    # Seconds for which nacre continues to read an output pipe that is still open after the shell's
    # exit.
    drain: float = 0.1
    kill_wait: float = 2.0  # seconds after KILL until nacre reports the processes that still run

    def __post_init__(self) -> None:
        for name in ("timeout", "grace", "drain", "kill_wait"):
            value = getattr(self, name)
            if not (value is None and name == "timeout") and not value >= 0:
                raise ValueError(f"a {name} of {value} seconds is not possible; give 0 or more")


class Keep(Struct, frozen=True, kw_only=True):
    """Amount of an output stream that is kept in memory, in raw bytes.

    An output stream of at most `whole` bytes is kept completely. Of an output stream with more than
    `whole` bytes, only the first `head` bytes and the last `tail` bytes are kept.
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
    # The spill file is written only if the output is too long to be kept in memory.
    OVERFLOW = "overflow"
    ALWAYS = "always"


class AtLimit(enum.Enum):
    """What happens to a command whose output exceeds the size limit of its spill file."""

    GO_ON = "go on"  # the command continues; its further output is counted, but not written to disk
    CLOSE = "close"  # nacre closes the output pipe, as when the reader in a shell pipeline exits
    STOP = "stop"  # nacre stops all processes of the command


class Spill(Struct, frozen=True, kw_only=True):
    """Spill file: a private file that holds a complete output stream, up to a size limit.

    An error in writing the spill file is reported and does not affect the command.
    """

    # Directory of the spill file; None: the system's directory for temporary files.
    directory: bytes | None = None
    when: When = When.OVERFLOW
    limit: int = 4 * GIB
    then: AtLimit = AtLimit.GO_ON

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError(f"a spill limit of {self.limit} bytes is not possible; give 0 or more")


class MakeDirectory(Struct, frozen=True, kw_only=True, tag="MakeDirectory"):
    """Chore (work before the spawn): create a directory and its parents in the store (nacre's files
    on disk), for a command to write into."""

    path: bytes


class MakeFile(Struct, frozen=True, kw_only=True, tag="MakeFile"):
    """Chore (work before the spawn): create a private file for a command to read, unless the file
    already exists."""

    path: bytes
    data: bytes


class LeftoverPolicy(enum.Enum):
    """What happens to the processes of a command that still run when their shell exits."""

    # Processes that outlive the shell keep running, as in any shell; the outcome lists them.
    KEEP = "keep"
    END = "end"  # processes that still run when the shell exits are stopped


Chore = MakeDirectory | MakeFile  # work that the engine does before it starts a command


class OpenStdin(Struct, frozen=True, kw_only=True, tag="Held", rename={"initial": "first"}):
    """Stdin that stays open: the command first reads the bytes in `initial`, then all bytes that
    are written to the run later."""

    initial: bytes = b""


class CompletionLine(Struct, frozen=True, kw_only=True):
    """Text that nacre appends to a command's output file when the shell has ended.

    The completion line, which nacre appends to a command's output file, is not part of the output,
    so it is not shown when the output is read by run id. A completion line may have placeholders in
    braces, such as {code}, for values that are known only when the command has ended.
    """

    zero: str
    exited: str  # line to append if the exit code is not 0; nacre replaces {code} by the exit code
    killed: str  # line to append if a signal killed the shell; {number} and {name}: the signal
    error: str  # line to append if neither exit code nor signal is known; {why}: the reason

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
        "read_only": "apart",
        "setup_signature": "setup",
        "fixed_cwd": "fixed",
        "move_noted": "noted",
    },
):
    """Session (a persistent shell's saved state) in which a command runs."""

    workspace_key: str = ""  # key of the workspace to which the session belongs
    key: str  # key of the session within its workspace
    # Session name that the user chose; empty: an unnamed session, private to one caller.
    name: str = ""
    contract: str = ""
    cwd_when_decided: bytes = b""  # working directory of the session when the plan was made
    read_only: bool = False  # whether the command uses the session's state without changing it
    # Digest of the user's shell startup files: the key under which nacre stores what the files
    # define, for new sessions; empty: a new session starts without these definitions.
    setup_signature: str = ""
    # Whether every command starts in the plan's directory, and no command changes the directory of
    # the session.
    fixed_cwd: bool = False
    # Whether the reply already says that the session's own directory cannot be entered.
    move_noted: bool = False
    # Seconds from its spawn for which a detached command keeps the session for itself.
    hold: float = 0.0


class ReportedPipeline(Struct, frozen=True, kw_only=True):
    """Pipeline of a plan's script, whose stages report their exit statuses."""

    # Offset of the pipeline in the script, if `&&` or `||` joins it to another command; else None.
    start: int | None
    end: int  # offset of the end of the pipeline
    stages: int


class Plan(
    Struct, frozen=True, kw_only=True, rename={"completion_line": "epitaph", "leftovers": "leave"}
):
    """Plan of one command, with every decision about how to run the command."""

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
    lane: str | None = None  # name of a lane; commands in the same lane run one at a time, in order
    chores: tuple[Chore, ...] = ()
    # Pipelines of the script whose exit statuses the outcome reports.
    pipelines: tuple[ReportedPipeline, ...] = ()
    # Facts that the preparation steps noted about the command.
    findings: tuple[AnyFinding, ...] = ()
