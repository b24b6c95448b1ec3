"""What deciding notes about a command: facts for the reply and for the run's record."""

from msgspec import Struct


class Finding(Struct, frozen=True, kw_only=True, tag="Finding"):
    """Something that was seen or done before the run."""


class CdLifted(Finding, frozen=True, kw_only=True, tag="Lifted"):
    """A leading `cd` became the directory to run in."""

    path: bytes  # as written, quotes resolved


class LinesLimited(Finding, frozen=True, kw_only=True, tag="Limited"):
    """A trailing `| head` or `| tail` became a limit on the lines that are shown."""

    head: int | None
    tail: int | None


class VariablesDropped(Finding, frozen=True, kw_only=True, tag="Dropped"):
    """Variables that the command does not get. Names only, never values."""

    names: tuple[str, ...]


class ToolSuggested(Finding, frozen=True, kw_only=True, tag="Suggested"):
    """Another tool of the caller's does this better."""

    tool: str
    message: str
    arguments: dict[str, str | int] = {}


class TrailerAdded(Finding, frozen=True, kw_only=True, tag="Signed"):
    """A trailer was added to this many commits."""

    trailer: str
    commits: int


class TrailerSkipped(Finding, frozen=True, kw_only=True, tag="Unsigned"):
    """A commit that gets no trailer, and why."""

    why: str


class NeedsTerminal(Finding, frozen=True, kw_only=True, tag="NeedsTerminal"):
    """A command that cannot do its work here."""

    words: str  # of the command
    why: str
    instead: str


AnyFinding = (
    CdLifted
    | LinesLimited
    | VariablesDropped
    | ToolSuggested
    | TrailerAdded
    | TrailerSkipped
    | NeedsTerminal
)
