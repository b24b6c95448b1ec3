"""The interface that every contract (dialect of the tool) implements, and the types that it uses.

The method `admit` turns the arguments of a tool call into a request to the engine. The method
`reply` turns the result of a request into text, and `reply_to_refusal` turns a refusal into text.
`Admitted.reply_context` carries facts from the arguments of a tool call that only the reply needs
and that the engine never sees.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from nacre.model.caller import Caller, ReadPosition
from nacre.model.findings import AnyFinding
from nacre.model.plan import Plan
from nacre.model.refusals import AnyRefusal, Refused, Unavailable
from nacre.model.requests import JobRequest, Result, StartRun
from nacre.prepare.decide import Step


class ToolSpec(Struct, frozen=True, kw_only=True):
    """Declaration of a tool for the model: name, description, and JSON schemas of arguments and
    reply."""

    name: str
    description: str
    schema: dict[str, Any]
    reply_schema: dict[str, Any]  # JSON schema of the structured part of the tool's replies


class Admitted(Struct, frozen=True, kw_only=True):
    request: StartRun | JobRequest
    # functions that check or change the plan of this call before the run
    steps: Sequence[Step] = ()
    reply_context: Any = None
    # `Caller` (facts about the calling side) with the directory of the session that the call uses;
    # None: the method `admit` has not changed the `Caller` that it was given
    caller: Caller | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """Reply to the model: a text, whether the text reports an error, and the same facts as data."""

    text: str
    is_error: bool
    details: dict[str, Any]
    run: str | None = None  # id of the run (`r17`), for reading its output later
    # How far the reply has reported each run, by the id of the run.
    read_to: Mapping[str, ReadPosition] = {}


class Checks(Protocol):
    """The part of a contract that decides whether and how a command runs."""

    name: str
    steps: Sequence[Step]

    def plan(self, script: bytes, caller: Caller) -> Plan:
        """Return the plan for running a script with the contract's default settings."""
        ...


class Contract(Checks, Protocol):
    event_interval: float  # minimum seconds between two chunks of live output for a listener
    has_sessions: bool

    def with_max_wait(self, seconds: float) -> "Contract":
        """Return the contract with `seconds` as the maximum blocking time of every call; a command
        that runs longer is detached and continues in the background. `with_max_wait` of a contract
        that cannot detach commands returns the contract unchanged."""
        ...

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]: ...

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        """Convert the arguments of a model's tool call to a request. Raises Refused for arguments
        that do not fit the tool."""
        ...

    def admit_user_command(self, arguments: object, caller: Caller) -> Admitted:
        """Convert a command of the user (not of the model) to a request. Raises Refused for bad
        arguments, and always in a contract that has no user commands."""
        ...

    def reply(self, result: Result, reply_context: Any, findings: Sequence[AnyFinding]) -> Reply:
        """Return the reply to the model for the result of a call. `findings` is what the checks
        before the run noticed about the command."""
        ...

    def reply_to_refusal(self, refusal: AnyRefusal) -> Reply: ...

    def to_json(self, reply: Reply) -> dict[str, Any]:
        """Return the reply as the JSON object that the command `nacre call` prints."""
        ...


def no_user_command(arguments: object, caller: Caller) -> Admitted:
    """Refuse a command of the user; contracts without user commands use this function as
    `admit_user_command`."""
    del arguments, caller
    raise Refused(Unavailable(problem="a user's own commands are pi's; take Tool('pi') for them"))


def reply_to_json(reply: Reply) -> dict[str, Any]:
    """Return the reply as the JSON object (`content`, `is_error`, `details`) that most contracts
    use."""
    return {"content": reply.text, "is_error": reply.is_error, "details": reply.details}


def reply_to_pi(reply: Reply) -> dict[str, Any]:
    """Return the reply as the JSON object that a tool of the agent pi returns."""
    return {
        "content": [{"type": "text", "text": reply.text}],
        "isError": reply.is_error,
        "details": reply.details,
    }
