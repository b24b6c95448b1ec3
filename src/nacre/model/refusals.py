"""Refusals: reasons why nacre did not run a command, found in the request or on the machine.

Each refusal is an immutable value that can be sent over a socket. `str(refusal)` is one plain
sentence with the remedy, but a contract (tool dialect) may use its own wording. The exception
`Refused` carries a refusal.
"""

import enum
from typing import ClassVar

from msgspec import Struct


class Refusal(Struct, frozen=True, kw_only=True, tag="Refusal"):
    """Reason why a command did not run.

    The msgspec tag identifies the class of a refusal on the socket and in the journal, and
    `public_id` identifies it in replies. The msgspec tag and `public_id` of a refusal never change,
    even if its class is renamed.
    """

    public_id: ClassVar[str]

    def __str__(self) -> str:
        raise NotImplementedError


class BadArguments(Refusal, frozen=True, kw_only=True, tag="BadArguments"):
    """Refusal: the arguments of the tool call are invalid.

    `problem` is a sentence for the model, in which the placeholder {} is replaced by `value`; the
    audit log shows the sentence without the value.
    """

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
    """Refusal: the working directory is not usable; `nearest` is its closest usable parent
    directory."""

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
    """Refusal: an environment variable in the tool call has an invalid name or value."""

    public_id: ClassVar[str] = "bad_variable"
    name: str
    problem: str

    def __str__(self) -> str:
        return f"{self.name!r} {self.problem}"


class Dangerous(Refusal, frozen=True, kw_only=True, tag="Dangerous"):
    """Refusal: a safety rule matched the script; `spans` are the byte ranges of the script that
    matched."""

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
    """Refusal: an interception rule requires the agent to use another of its tools for this
    command."""

    public_id: ClassVar[str] = "intercepted"
    rule: str
    tool: str
    message: str
    command: str  # whole command as the caller wrote it
    matched: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    arguments: dict[str, str | int] = {}

    def __str__(self) -> str:
        return f"blocked by rule {self.rule}: {self.message}"


class BadLink(Refusal, frozen=True, kw_only=True, tag="BadLink"):
    """Refusal: an internal URL in the command, such as `local://x`, cannot be resolved."""

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
    """Refusal: the command was cancelled before it started."""

    public_id: ClassVar[str] = "called_off"

    def __str__(self) -> str:
        return "the command was cancelled before it started; nothing ran"


class Unavailable(Refusal, frozen=True, kw_only=True, tag="Unavailable"):
    """Refusal: the request cannot be carried out at present; the sentence `problem` says why."""

    public_id: ClassVar[str] = "unavailable"
    problem: str

    def __str__(self) -> str:
        return self.problem


class UnknownRun(Refusal, frozen=True, kw_only=True, tag="UnknownRun"):
    """Refusal: the workspace has no run with this id, or the run has already ended."""

    public_id: ClassVar[str] = "unknown_run"
    run: str

    def __str__(self) -> str:
        return f"there is no live run {self.run} in this workspace; nacre ps lists the runs"


class NotWaited(Refusal, frozen=True, kw_only=True, tag="NotWaited"):
    """Refusal: the caller stopped waiting for a run, but the run itself continues."""

    public_id: ClassVar[str] = "not_waited"

    def __str__(self) -> str:
        return "the call was cancelled; the run is still running"


class NotFound(Refusal, frozen=True, kw_only=True, tag="NotFound"):
    """Refusal: the workspace has no run with this id, neither running nor ended."""

    public_id: ClassVar[str] = "not_found"
    run: str

    def __str__(self) -> str:
        return (
            f"there is no run {self.run} in this workspace, or it was cleaned up; "
            'job {"action": "list"} shows the runs'
        )


class TooMany(Refusal, frozen=True, kw_only=True, tag="TooMany", rename={"limit": "most"}):
    """Refusal: the maximum number of runs is reached, and no run is ended to make room for a new
    run."""

    public_id: ClassVar[str] = "too_many"
    limit: int
    runs: tuple[tuple[str, str], ...]  # (id, command) of each live run
    kind: str = "background jobs"

    def __str__(self) -> str:
        listed = "\n".join(f"  {name}  {command}" for name, command in self.runs)
        return (
            f"{len(self.runs)} {self.kind} run, and {self.limit} may; "
            f"wait for one of them, or end one:\n{listed}"
        )


class OtherRequest(Refusal, frozen=True, kw_only=True, tag="OtherRequest"):
    """Refusal: the request id was already used for a different command."""

    public_id: ClassVar[str] = "other_request"
    id: str
    run: str

    def __str__(self) -> str:
        return (
            f"request_id {self.id!r} was used for another command before ({self.run}); a repeated "
            "id retries the same command, so choose a new one"
        )


class NoBackground(Refusal, frozen=True, kw_only=True, tag="NoBackground"):
    """Refusal: a tool that was created with place='here' may not start a command that outlives its
    call."""

    public_id: ClassVar[str] = "no_background"

    def __str__(self) -> str:
        return "background runs are not available: this tool was created with place='here'"


class Closed(Refusal, frozen=True, kw_only=True, tag="Closed"):
    public_id: ClassVar[str] = "closed"

    def __str__(self) -> str:
        return "this tool is closed; create a new one"


# Union of all refusals that can be sent over a socket; the msgspec decoder needs this type.
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
    """Exception for a command that was not run; `refusal` is the reason."""

    def __init__(self, refusal: AnyRefusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def _decode(path: bytes) -> str:
    return path.decode("utf-8", "replace")
