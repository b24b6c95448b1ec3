"""State of one tool call, conversion of the engine's response to the result of the call, and the
call's line in the audit log."""

from collections.abc import Mapping
from typing import Final

from nacre.contracts.contract import Admitted
from nacre.engine.ticket import Ticket
from nacre.model.caller import Caller
from nacre.model.findings import VariablesDropped
from nacre.model.outcome import (
    Cancelled,
    Capture,
    Exited,
    Killed,
    Lost,
    NotStarted,
    Outcome,
    TimedOut,
)
from nacre.model.plan import Plan
from nacre.model.refusals import AnyRefusal, BadArguments, CalledOff, Refused
from nacre.model.requests import AlreadyStarted, Done, Listing, Rejected, Response, Result, Running
from nacre.store.audit_log import AuditLine, AuditLog
from nacre.text.clean import decode

# Values of the audit log's field `ending` for tool calls that have an outcome; for all other tool
# calls, the value is Refused, Listed or Running.
# Programs read the audit log, so the values of its field `ending` stay the same even if a class
# such as `Exited` is renamed.
_ENDINGS: Final[dict[type, str]] = {
    Exited: "Exited",
    Killed: "Killed",
    TimedOut: "TimedOut",
    Cancelled: "Cancelled",
    NotStarted: "NotStarted",
    Lost: "Lost",
}


class Call:
    # Class-level defaults make creating a `Call` faster, as `engine.run.Run` explains.
    caller: Caller | None = None
    ticket: Ticket[Response | Listing] | None = None
    admitted: Admitted
    plan: Plan | None = None
    line: AuditLine | None = None

    def __init__(
        self, tool: str, arguments: object, *, by_user: bool = False, reader: str = ""
    ) -> None:
        self.tool = tool
        self.reader = reader  # name of the caller among several callers of one tool
        self.by_user = by_user
        self.arguments = arguments

    def wait(self) -> Result:
        """Wait for the engine's response to this call and return the result. Raises Refused."""
        assert self.ticket is not None
        return check_response(self.ticket.wait())

    async def await_result(self) -> Result:
        """Await the engine's response to this call and return the result. Raises Refused."""
        assert self.ticket is not None
        return check_response(await self.ticket)

    def abandon(self) -> None:
        if self.ticket is not None:
            self.ticket.abandon()

    def cancel(self) -> None:
        if self.ticket is not None:
            self.ticket.cancel()


class CallLog:
    """Writer for the audit log, which gets one line about each call of a tool."""

    def __init__(self, audit: AuditLog, contract: str) -> None:
        self._audit = audit
        self._contract = contract

    def begin(self, call: Call, cwd: bytes) -> None:
        assert call.caller is not None
        command = call.arguments.get("command") if isinstance(call.arguments, Mapping) else None
        if call.tool == "job" and isinstance(call.arguments, Mapping):
            # The audit log omits text that is written to a run's stdin, because the text may be a
            # password.
            values = (call.arguments.get(name) for name in ("action", "run", "list", "poll"))
            command = " ".join(["job", *(each[:60] for each in values if isinstance(each, str))])
        call.line = self._audit.begin(
            {
                "contract": self._contract,
                "tool": call.tool,
                "workspace": decode(call.caller.workspace),
                "command": command if isinstance(command, str) else None,
                "cwd": decode(cwd),
            }
        )

    def end(self, call: Call, answer: Result) -> None:
        rest = _result_fields(answer)
        for each in call.plan.findings if call.plan is not None else ():
            if isinstance(each, VariablesDropped):
                rest["dropped"] = each.names
        self._end(call, rest)

    def end_if_answered(self, call: Call) -> None:
        """Write the audit log's line about an interrupted call if the engine has responded to the
        call. The caller of an interrupted call never gets the response, but the audit log must show
        what ran."""
        over = None if call.ticket is None else call.ticket.answer
        if isinstance(over, Outcome | Running | Listing):
            self.end(call, over)

    def refuse(self, call: Call, refusal: AnyRefusal) -> None:
        rule = getattr(refusal, "rule", None)
        rest: dict[str, object] = {"decision": "refuse", **({"rule": rule} if rule else {})}
        self._end(call, {**rest, "refused": _reason(refusal), "ending": "Refused"})

    def _end(self, call: Call, rest: dict[str, object]) -> None:
        if call.line is None:
            assert call.caller is not None
            self.begin(call, call.caller.cwd if call.plan is None else call.plan.command.cwd)
        assert call.line is not None
        call.line.end(rest)


def check_response(reached: Response | Listing) -> Result:
    """Convert the engine's or the warden's response to the result of a tool call. A request that
    was cancelled before its command started becomes an outcome with the ending `NotStarted`. Raises
    Refused for a rejected request, unless the request was cancelled."""
    match reached:
        case Rejected(refusal=CalledOff() as why):
            return Outcome(run="u0", ending=NotStarted(why), output=Capture())
        case Rejected(refusal=refusal):
            raise Refused(refusal)
        case Done() | AlreadyStarted():
            raise AssertionError(f"unexpected response {reached!r}")
        case _:
            return reached


def _result_fields(answer: Result) -> dict[str, object]:
    if isinstance(answer, Listing):
        return {"decision": "run", "ending": "Listed"}
    if isinstance(answer, Running):
        return {
            "run": answer.run,
            "decision": "run",
            "ending": "Running",
            "pid": answer.pid,
            "seconds": round(answer.seconds, 3),
            "stdout_bytes": answer.output.size,
        }
    ending = answer.ending
    rest: dict[str, object] = {
        "run": answer.run,
        "decision": "run",
        "ending": _ENDINGS[type(ending)],
        "exit_code": answer.exit_code,
        "seconds": round(answer.seconds, 3),
        "stdout_bytes": answer.output.size,
        "stderr_bytes": answer.errors.size if answer.errors else None,
        "left_running": len(answer.left_running),
    }
    if isinstance(ending, NotStarted):
        rest["refused"] = _reason(ending.why)
    return rest


def _reason(refusal: AnyRefusal) -> str:
    """Return the reason of a refusal for the audit log, without the values of the call's
    arguments."""
    if isinstance(refusal, BadArguments):
        return refusal.problem.replace("{}", "…", 1)
    return str(refusal)
