"""What shall happen: the values that describe one command before it runs.

A contract makes a `Plan` from a model's arguments, `prepare` may change or refuse it, the
engine carries it out. Everything here is a frozen value; script, directory and environment
are bytes, as the kernel has them.
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
    """How the command's stdout and stderr reach us."""

    MERGED = "merged"  # one pipe, so the order is the order of writing
    SEPARATE = "separate"  # two pipes; no order between them


Limit = Annotated[int, Meta(ge=-1, le=2**63 - 1)]  # -1: none


class CallerLimits(Struct, frozen=True, kw_only=True):
    """What else a command has from its caller, where somebody else starts it."""

    umask: Annotated[int, Meta(ge=0, le=0o777)]
    limits: tuple[tuple[Limit, Limit], ...]  # soft and hard, by the number of the resource


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
    """A shell script, where it runs and with which variables."""

    original: bytes  # as the caller wrote it
    script: bytes  # as bash gets it
    cwd: bytes
    cwd_given: bool = False  # the call itself says where it runs
    env: dict[bytes, bytes] | None = None  # None: exactly what this process has
    call_env: dict[bytes, bytes] = {}  # the variables that the call itself gives; never filtered
    caller_limits: CallerLimits | None = None  # None: those of this process


class Limits(Struct, frozen=True, kw_only=True, rename={"kill_wait": "surrender"}):
    """Seconds. The clocks start at the spawn, not in the queue."""

    timeout: float | None = None
    grace: float = 2.0  # between TERM and KILL, for the whole tree
    drain: float = 0.1  # after the exit, for whoever still holds the pipe
    kill_wait: float = 2.0  # after KILL, before what cannot be killed is reported

    def __post_init__(self) -> None:
        for name in ("timeout", "grace", "drain", "kill_wait"):
            value = getattr(self, name)
            if not (value is None and name == "timeout") and not value >= 0:
                raise ValueError(f"a {name} of {value} seconds makes no sense; it is at least 0")


class Keep(Struct, frozen=True, kw_only=True):
    """How much of a stream stays in memory, in raw bytes.

    Everything up to `whole`; past that only the first `head` and the last `tail`.
    """

    whole: int
    head: int
    tail: int

    def __post_init__(self) -> None:
        if min(self.whole, self.head, self.tail) < 0 or self.head > self.whole:
            raise ValueError(f"{self} makes no sense: sizes are at least 0, head at most whole")


class When(enum.Enum):
    OVERFLOW = "overflow"  # when memory keeps less than everything
    ALWAYS = "always"


class AtLimit(enum.Enum):
    """What becomes of a command that has written more than may be kept on disk."""

    GO_ON = "go on"  # it never notices; what follows is only counted
    CLOSE = "close"  # its pipe is closed, as that of a reader who has seen enough
    STOP = "stop"  # it is ended, and all it has started


class Spill(Struct, frozen=True, kw_only=True):
    """A private file that holds a stream whole, up to a limit on disk.

    A file that cannot be written is reported, that is all: the command does not suffer from it.
    """

    directory: bytes | None = None  # None: the usual place for temporary files
    when: When = When.OVERFLOW
    limit: int = 4 * GIB
    then: AtLimit = AtLimit.GO_ON

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError(
                f"a spill limit of {self.limit} bytes makes no sense; it is at least 0"
            )


class MakeDirectory(Struct, frozen=True, kw_only=True, tag="MakeDirectory"):
    """A directory of ours that a command will want to write into, with its parents."""

    path: bytes


class MakeFile(Struct, frozen=True, kw_only=True, tag="MakeFile"):
    """A private file that a command will want to read; one that is there is left as it is."""

    path: bytes
    data: bytes


class LeftoverPolicy(enum.Enum):
    """What becomes of the processes that a shell leaves running when it exits."""

    KEEP = "keep"  # they live on, as in any shell, and are listed
    END = "end"  # they are ended with it


Chore = MakeDirectory | MakeFile  # what the engine does before it spawns


class OpenStdin(Struct, frozen=True, kw_only=True, tag="Held", rename={"initial": "first"}):
    """Input that stays open: what is given first, then whatever is written to the run."""

    initial: bytes = b""


class CompletionLine(Struct, frozen=True, kw_only=True):
    """What is put at the end of the output file when the shell has ended. It is not output: whoever
    reads the run by its number does not see it. {} stands for what is not known before."""

    zero: str
    exited: str  # {code}
    killed: str  # {number}, {name}
    error: str  # {why}

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
                why = "nobody was there when it ended; its exit code is not known"
            case _:
                why = "it could not be killed"
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
    """A shell that remembers, of which a command is the next one."""

    workspace_key: str = ""  # which workspace's
    key: str  # which of those
    name: str = ""  # as people call it; without one it belongs to one caller alone
    contract: str = ""
    cwd_when_decided: bytes = b""  # where its shell stood when this was decided
    detached: bool = False  # it begins where the session is now, and is no part of it
    setup_signature: str = ""  # which snapshot of its user's own set-up it begins with; none


class Plan(
    Struct, frozen=True, kw_only=True, rename={"completion_line": "epitaph", "leftovers": "leave"}
):
    """One command with everything that was decided about it."""

    command: Command
    shell: bytes = BASH
    streams: Streams = Streams.MERGED
    limits: Limits = Limits()
    keep: Keep = Keep(whole=MIB, head=256 * KIB, tail=768 * KIB)
    spill: Spill | None = None
    stdin: bytes | OpenStdin | None = None  # None: /dev/null
    completion_line: CompletionLine | None = None
    leftovers: LeftoverPolicy = LeftoverPolicy.KEEP
    session: Session | None = None
    lane: str | None = None  # of the runs in one lane only one runs at a time, in order
    chores: tuple[Chore, ...] = ()
    findings: tuple[AnyFinding, ...] = ()  # what deciding noted on the way
