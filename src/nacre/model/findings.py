"""Findings: facts about a command that nacre's preparation steps note before the command runs.

The reply to the model and the audit log use the findings about a command.
"""

from msgspec import Struct


class Finding(Struct, frozen=True, kw_only=True, tag="Finding"):
    """Fact that a preparation step noticed about a command, or change that the step made to it."""


class CdLifted(Finding, frozen=True, kw_only=True, tag="Lifted"):
    """Finding: a leading `cd DIR` was removed, and DIR became the working directory of the run."""

    path: bytes  # DIR of the leading `cd DIR` that nacre removed, as written but without quotes


class LinesLimited(Finding, frozen=True, kw_only=True, tag="Limited"):
    """Finding: a trailing `| head` or `| tail` was replaced by a limit on the lines shown in the
    reply."""

    head: int | None
    tail: int | None


class VariablesDropped(Finding, frozen=True, kw_only=True, tag="Dropped"):
    """Finding: names (never values) of the environment variables that the command does not get."""

    names: tuple[str, ...]


class ToolSuggested(Finding, frozen=True, kw_only=True, tag="Suggested"):
    """Finding: another tool of the agent fits this command better than the shell."""

    tool: str
    message: str
    arguments: dict[str, str | int] = {}


class TrailerAdded(Finding, frozen=True, kw_only=True, tag="Signed"):
    """Finding: a trailer such as `Co-authored-by` is added to commit messages; `commits` is the
    number of git commits."""

    trailer: str
    commits: int


class TrailerSkipped(Finding, frozen=True, kw_only=True, tag="Unsigned"):
    """Finding: a git commit gets no trailer line, for the reason in `why`."""

    why: str


class NeedsTerminal(Finding, frozen=True, kw_only=True, tag="NeedsTerminal"):
    """Finding: a command cannot work under nacre, because it needs a terminal or an editor."""

    words: str  # text of the command that needs a terminal
    why: str
    instead: str


class SessionMoved(Finding, frozen=True, kw_only=True, tag="Moved"):
    """Finding: the directory of the session cannot be entered, so that the directory of the call is
    found from the nearest parent directory."""

    before: bytes
    now: bytes


AnyFinding = (
    CdLifted
    | LinesLimited
    | VariablesDropped
    | ToolSuggested
    | TrailerAdded
    | TrailerSkipped
    | NeedsTerminal
    | SessionMoved
)
