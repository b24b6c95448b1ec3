"""Findings: facts that the steps note about a command before it runs.

Findings are used in the reply and in the audit log.
"""

from msgspec import Struct


class Finding(Struct, frozen=True, kw_only=True, tag="Finding"):
    """Fact that a step noticed, or change that a step made, before the run."""


class CdLifted(Finding, frozen=True, kw_only=True, tag="Lifted"):
    """A leading `cd` was removed; its target became the working directory of the run."""

    path: bytes  # argument of `cd` as written, with quotes removed


class LinesLimited(Finding, frozen=True, kw_only=True, tag="Limited"):
    """A trailing `| head` or `| tail` was replaced by a limit on the lines shown in the reply."""

    head: int | None
    tail: int | None


class VariablesDropped(Finding, frozen=True, kw_only=True, tag="Dropped"):
    """Environment variables that the command does not get: only names, never values."""

    names: tuple[str, ...]


class ToolSuggested(Finding, frozen=True, kw_only=True, tag="Suggested"):
    """Another tool of the agent fits this command better."""

    tool: str
    message: str
    arguments: dict[str, str | int] = {}


class TrailerAdded(Finding, frozen=True, kw_only=True, tag="Signed"):
    """A trailer line is added to the messages of this many git commits."""

    trailer: str
    commits: int


class TrailerSkipped(Finding, frozen=True, kw_only=True, tag="Unsigned"):
    """A git commit gets no trailer line; `why` is the reason."""

    why: str


class NeedsTerminal(Finding, frozen=True, kw_only=True, tag="NeedsTerminal"):
    """A command cannot work in a run, because it needs a terminal or an editor."""

    words: str  # text of the command
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
