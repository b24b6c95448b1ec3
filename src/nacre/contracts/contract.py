"""What every contract is made of.

`admit` turns arguments into a request, `reply` turns the result into text, `reply_to_refusal`
does so for a refusal. What only the reply needs to know of the arguments travels in
`Admitted.reply_context`; the engine never sees it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from nacre.model.caller import Caller
from nacre.model.findings import AnyFinding
from nacre.model.plan import Plan
from nacre.model.refusals import AnyRefusal, Refused, Unavailable
from nacre.model.requests import JobRequest, PollJobs, Result, StartRun
from nacre.prepare.decide import Step


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model is told about it."""

    name: str
    description: str
    schema: dict[str, Any]
    reply_schema: dict[str, Any]  # of the structured part of its replies, as a schema


class Admitted(Struct, frozen=True, kw_only=True):
    request: StartRun | PollJobs | JobRequest
    steps: Sequence[Step] = ()  # what this call goes through before it runs
    reply_context: Any = None
    caller: Caller | None = None  # who asks, if he stands elsewhere than the tool does


class Reply(Struct, frozen=True, kw_only=True):
    """What the model gets: words, whether they are an error, and the same as data."""

    text: str
    is_error: bool
    details: dict[str, Any]
    run: str | None = None  # its number, r17, by which the output can be read later


class Checks(Protocol):
    """What a contract decides about a command before it runs."""

    name: str
    steps: Sequence[Step]

    def plan(self, script: bytes, caller: Caller) -> Plan:
        """What shall happen to a command when nothing else is said about it."""
        ...


class Contract(Checks, Protocol):
    event_interval: float  # seconds at least between two live updates
    has_sessions: bool  # it has sessions

    def with_max_wait(self, seconds: float) -> "Contract":
        """The same, of which no call blocks longer than that: what still runs then is handed back.
        Those that cannot hand anything back stay as they are."""
        ...

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]: ...

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        """Raises Refused for arguments that cannot be understood."""
        ...

    def admit_user_command(self, arguments: object, caller: Caller) -> Admitted:
        """A command of the user's own, not the model's. Raises Refused, also where there is no such
        thing in the contract."""
        ...

    def reply(self, result: Result, reply_context: Any, findings: Sequence[AnyFinding]) -> Reply:
        """`findings` is what was noted before the run."""
        ...

    def reply_to_refusal(self, refusal: AnyRefusal) -> Reply: ...

    def to_json(self, reply: Reply) -> dict[str, Any]:
        """The reply as one JSON object, as `nacre call` prints it."""
        ...


def no_user_command(arguments: object, caller: Caller) -> Admitted:
    """`admit_user_command` of a contract that knows only the model's."""
    del arguments, caller
    raise Refused(Unavailable(problem="a user's own commands are pi's; take Tool('pi') for them"))


def reply_to_json(reply: Reply) -> dict[str, Any]:
    """The usual object."""
    return {"content": reply.text, "is_error": reply.is_error, "details": reply.details}
