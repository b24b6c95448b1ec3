"""The interface of every contract, and the types in that interface.

`admit` turns arguments into a request. `reply` turns a result into text, and `reply_to_refusal`
turns a refusal into text. `Admitted.reply_context` carries facts from the arguments that only the
reply needs. The engine never sees `Admitted.reply_context`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from nacre.model.caller import Caller
from nacre.model.findings import AnyFinding
from nacre.model.plan import Plan
from nacre.model.refusals import AnyRefusal, Refused, Unavailable
from nacre.model.requests import JobRequest, Result, StartRun
from nacre.prepare.decide import Step


class ToolSpec(Struct, frozen=True, kw_only=True):
    """Declaration of a tool for the model."""

    name: str
    description: str
    schema: dict[str, Any]
    reply_schema: dict[str, Any]  # JSON schema of the structured part of the tool's replies


class Admitted(Struct, frozen=True, kw_only=True):
    request: StartRun | JobRequest
    steps: Sequence[Step] = ()  # steps that check this call before the run
    reply_context: Any = None
    caller: Caller | None = None  # the caller, if its directory differs from the tool's


class Reply(Struct, frozen=True, kw_only=True):
    """Reply to the model: a text, whether the text reports an error, and the same facts as data."""

    text: str
    is_error: bool
    details: dict[str, Any]
    run: str | None = None  # run id (`r17`), for reading the output later


class Checks(Protocol):
    """The part of a contract that decides about a command before the run."""

    name: str
    steps: Sequence[Step]

    def plan(self, script: bytes, caller: Caller) -> Plan:
        """Return the plan for a script with the contract's default settings."""
        ...


class Contract(Checks, Protocol):
    event_interval: float  # minimum seconds between two live updates
    has_sessions: bool

    def with_max_wait(self, seconds: float) -> "Contract":
        """Return the contract with a maximum blocking time for every call. A command that runs
        longer is detached. A contract that cannot detach commands returns itself."""
        ...

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]: ...

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        """Convert arguments to a request. Raises Refused for arguments that do not fit."""
        ...

    def admit_user_command(self, arguments: object, caller: Caller) -> Admitted:
        """Convert a command of the user, not of the model, to a request. Raises Refused for bad
        arguments, and in a contract without user commands."""
        ...

    def reply(self, result: Result, reply_context: Any, findings: Sequence[AnyFinding]) -> Reply:
        """Return the reply to the model. `findings` come from the steps before the run."""
        ...

    def reply_to_refusal(self, refusal: AnyRefusal) -> Reply: ...

    def to_json(self, reply: Reply) -> dict[str, Any]:
        """Return the reply as the JSON object that `nacre call` prints."""
        ...


def no_user_command(arguments: object, caller: Caller) -> Admitted:
    """Refuse a user command. Contracts without user commands use this as `admit_user_command`."""
    del arguments, caller
    raise Refused(Unavailable(problem="a user's own commands are pi's; take Tool('pi') for them"))


def reply_to_json(reply: Reply) -> dict[str, Any]:
    """Return the reply as the JSON object that most contracts use."""
    return {"content": reply.text, "is_error": reply.is_error, "details": reply.details}
