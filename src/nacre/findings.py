"""What deciding notes about a command: facts for the reply and for the run's record."""

from msgspec import Struct


class Finding(Struct, frozen=True, kw_only=True, tag=True):
    """Something that was seen or done before the run."""


class Lifted(Finding, frozen=True, kw_only=True):
    """A leading `cd` became the directory to run in."""

    path: bytes  # as written, quotes resolved


class Limited(Finding, frozen=True, kw_only=True):
    """A trailing `| head` or `| tail` became a limit on the lines that are shown."""

    head: int | None
    tail: int | None


class Dropped(Finding, frozen=True, kw_only=True):
    """Variables that the command does not get. Names only, never values."""

    names: tuple[str, ...]


class Suggested(Finding, frozen=True, kw_only=True):
    """Another tool of the caller's does this better."""

    tool: str
    message: str
    arguments: dict[str, str | int] = {}


class Signed(Finding, frozen=True, kw_only=True):
    """A trailer was added to this many commits."""

    trailer: str
    commits: int


class Unsigned(Finding, frozen=True, kw_only=True):
    """A commit that gets no trailer, and why."""

    why: str


class NeedsTerminal(Finding, frozen=True, kw_only=True):
    """A command that cannot do its work here."""

    words: str  # of the command
    why: str
    instead: str


AnyFinding = Lifted | Limited | Dropped | Suggested | Signed | Unsigned | NeedsTerminal
