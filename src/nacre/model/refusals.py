"""What can be wrong with an ask or with the machine, as facts.

A refusal means that nothing ran. Each is a frozen value that can cross a socket and knows one
plain sentence with its remedy; a contract that has words of its own for a fact uses those.
One exception carries them: `Refused`.
"""

import enum
from typing import ClassVar

from msgspec import Struct


class Refusal(Struct, frozen=True, kw_only=True, tag="Refusal"):
    """Something that kept a command from running.

    The tag goes over the socket and into the journal, `public_id` into replies. Both are fixed,
    whatever the class is called.
    """

    public_id: ClassVar[str]

    def __str__(self) -> str:
        raise NotImplementedError


class BadArguments(Refusal, frozen=True, kw_only=True, tag="BadArguments"):
    """The caller's arguments cannot be understood; `problem` is a sentence for the model, in which
    {} stands for the value, so that it can be told without."""

    public_id: ClassVar[str] = "bad_arguments"
    problem: str
    value: str = "{}"

    def __str__(self) -> str:
        return self.problem.replace("{}", self.value, 1)


class UnknownTool(Refusal, frozen=True, kw_only=True, tag="UnknownTool"):
    public_id: ClassVar[str] = "unknown_tool"
    tool: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return f"there is no tool {self.tool!r} in this contract; it has {', '.join(self.known)}"


class DirectoryProblem(enum.Enum):
    MISSING = "does not exist"
    NOT_A_DIRECTORY = "is not a directory"
    FORBIDDEN = "cannot be entered (permission denied)"


class BadDirectory(Refusal, frozen=True, kw_only=True, tag="BadDirectory"):
    """The directory to run in is not usable; `nearest` is its closest parent that is."""

    public_id: ClassVar[str] = "bad_directory"
    path: bytes
    problem: DirectoryProblem
    nearest: bytes | None = None

    def __str__(self) -> str:
        text = f"cwd {_decode(self.path)} {self.problem.value}"
        match self.problem, self.nearest:
            case DirectoryProblem.MISSING, bytes(nearest):
                return f"{text}; {_decode(nearest)} does"
            case DirectoryProblem.NOT_A_DIRECTORY, bytes(nearest):
                return f"{text}; {_decode(nearest)} is"
            case DirectoryProblem.FORBIDDEN, bytes(nearest):
                return f"{text}; {_decode(nearest)} can"
            case _:
                return f"{text}; choose another directory"


class BadVariable(Refusal, frozen=True, kw_only=True, tag="BadVariable"):
    """A variable that no environment can hold."""

    public_id: ClassVar[str] = "bad_variable"
    name: str
    problem: str

    def __str__(self) -> str:
        return f"{self.name!r} {self.problem}"


class Dangerous(Refusal, frozen=True, kw_only=True, tag="Dangerous"):
    """A safety rule matched. `spans` are the bytes of the script that did."""

    public_id: ClassVar[str] = "dangerous"
    rule: str
    matched: tuple[str, ...]
    why: str
    instead: str
    spans: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        words = " ".join(self.matched)
        return f"refused by rule {self.rule}: {words!r} {self.why}; {self.instead}"


class Intercepted(Refusal, frozen=True, kw_only=True, tag="Intercepted"):
    """The caller has a better tool for this, and its rules say to use it."""

    public_id: ClassVar[str] = "intercepted"
    rule: str
    tool: str
    message: str
    command: str  # as it was given
    matched: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    arguments: dict[str, str | int] = {}

    def __str__(self) -> str:
        return f"blocked by rule {self.rule}: {self.message}"


class BadLink(Refusal, frozen=True, kw_only=True, tag="BadLink"):
    """An internal URL that stands for nothing."""

    public_id: ClassVar[str] = "bad_link"
    url: str
    problem: str

    def __str__(self) -> str:
        return f"{self.url}: {self.problem}"


class NoShell(Refusal, frozen=True, kw_only=True, tag="NoShell"):
    public_id: ClassVar[str] = "no_shell"
    path: bytes
    reason: str

    def __str__(self) -> str:
        return f"cannot start {_decode(self.path)} ({self.reason}); install bash there"


class NoDescriptors(Refusal, frozen=True, kw_only=True, tag="NoDescriptors"):
    public_id: ClassVar[str] = "no_descriptors"
    limit: int

    def __str__(self) -> str:
        return (
            f"this process has no file descriptors left (limit {self.limit}); "
            "raise it with ulimit -n, or close some files"
        )


class NoProcesses(Refusal, frozen=True, kw_only=True, tag="NoProcesses"):
    public_id: ClassVar[str] = "no_processes"

    def __str__(self) -> str:
        return (
            "the system will not start another process (resource temporarily unavailable); "
            "end some processes, or raise ulimit -u or the pids limit of the container"
        )


class NoMemory(Refusal, frozen=True, kw_only=True, tag="NoMemory"):
    public_id: ClassVar[str] = "no_memory"

    def __str__(self) -> str:
        return "the system has no memory left to start a process; end some processes and try again"


class CannotSpawn(Refusal, frozen=True, kw_only=True, tag="CannotSpawn"):
    public_id: ClassVar[str] = "cannot_spawn"
    reason: str

    def __str__(self) -> str:
        return f"the command could not be started: {self.reason}"


class CalledOff(Refusal, frozen=True, kw_only=True, tag="CalledOff"):
    """Cancelled before it started."""

    public_id: ClassVar[str] = "called_off"

    def __str__(self) -> str:
        return "the command was cancelled before it started; nothing ran"


class Unavailable(Refusal, frozen=True, kw_only=True, tag="Unavailable"):
    """Something of the contract that cannot be had here; `problem` is a sentence."""

    public_id: ClassVar[str] = "unavailable"
    problem: str

    def __str__(self) -> str:
        return self.problem


class UnknownRun(Refusal, frozen=True, kw_only=True, tag="UnknownRun"):
    """There is no such run in this workspace, or it does not run any more."""

    public_id: ClassVar[str] = "unknown_run"
    run: str

    def __str__(self) -> str:
        return f"there is no live run {self.run} in this workspace; nacre ps lists those there are"


class NotWaited(Refusal, frozen=True, kw_only=True, tag="NotWaited"):
    """Whoever waited for a run waits no longer."""

    public_id: ClassVar[str] = "not_waited"

    def __str__(self) -> str:
        return "the call was cancelled; the run goes on"


class NotFound(Refusal, frozen=True, kw_only=True, tag="NotFound"):
    """There is no such run in this workspace, nor was there."""

    public_id: ClassVar[str] = "not_found"
    run: str

    def __str__(self) -> str:
        return (
            f"there is no run {self.run} in this workspace, or it was swept; "
            'job {"action": "list"} shows those there are'
        )


class TooMany(Refusal, frozen=True, kw_only=True, tag="TooMany", rename={"limit": "most"}):
    """As many run as may. None of them is ended for a new one."""

    public_id: ClassVar[str] = "too_many"
    limit: int
    runs: tuple[tuple[str, str], ...]  # names and commands
    kind: str = "background jobs"

    def __str__(self) -> str:
        listed = "\n".join(f"  {name}  {command}" for name, command in self.runs)
        return (
            f"{len(self.runs)} {self.kind} run, and {self.limit} may; "
            f"wait for one of them, or end one:\n{listed}"
        )


class OtherRequest(Refusal, frozen=True, kw_only=True, tag="OtherRequest"):
    """A request id that stands for something else already."""

    public_id: ClassVar[str] = "other_request"
    id: str
    run: str

    def __str__(self) -> str:
        return (
            f"request_id {self.id!r} was given to another command before ({self.run}); the same id "
            "is for the same command again, so choose a new one"
        )


class NoBackground(Refusal, frozen=True, kw_only=True, tag="NoBackground"):
    """Nothing may run here that outlives its call."""

    public_id: ClassVar[str] = "no_background"

    def __str__(self) -> str:
        return "nothing runs in the background here: this tool was made with place='here'"


class Closed(Refusal, frozen=True, kw_only=True, tag="Closed"):
    public_id: ClassVar[str] = "closed"

    def __str__(self) -> str:
        return "this tool is closed; make a new one"


# Every fact that can cross a socket, for the decoder on the other side.
AnyRefusal = (
    BadArguments
    | UnknownTool
    | BadDirectory
    | BadVariable
    | Dangerous
    | Intercepted
    | BadLink
    | NoShell
    | NoDescriptors
    | NoProcesses
    | NoMemory
    | CannotSpawn
    | CalledOff
    | Unavailable
    | UnknownRun
    | NotFound
    | NotWaited
    | TooMany
    | OtherRequest
    | NoBackground
    | Closed
)


class Refused(Exception):
    """Nothing ran; `refusal` says why."""

    def __init__(self, refusal: AnyRefusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def _decode(path: bytes) -> str:
    return path.decode("utf-8", "replace")
