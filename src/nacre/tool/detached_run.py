"""Detached run: a run that continues after its tool call has returned.

The reply at the end of a detached run is the reply that its call would have returned if the call
had waited. Front ends such as `nacre rpc` send this reply to their clients, because an agent cannot
know when a background job ends.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from nacre.contracts.contract import Contract, Reply
from nacre.engine.engine import Engine
from nacre.engine.ticket import Ticket
from nacre.model.outcome import JobState, Outcome, job_state
from nacre.runs.access import RunAccess
from nacre.runs.dispatch import with_stored_output
from nacre.store.stored_run import NoSuchRun
from nacre.tool.call_log import Call


class JobEnd(Struct, frozen=True, kw_only=True):
    """End of a detached run."""

    run: str
    state: JobState
    reply: Reply  # reply that the call would have returned if it had waited


class DetachedRun:
    """Run that continues although its tool call has returned."""

    def __init__(self, run: str, call: Call, contract: Contract, engine: Engine) -> None:
        self.run = run
        self._call = call
        self._contract = contract
        self._engine = engine
        self._ticket: Ticket[Outcome | None] | None = None

    def follow(self, then: Callable[[JobEnd], object]) -> None:
        """Pass the end of the run to the callback `then`, in a later `Engine.step`. `then` is not
        called if the run is removed from the store before the run ends."""
        ticket = self._start_wait()
        if ticket is not None:
            ticket.then(lambda outcome: None if outcome is None else then(self._build_end(outcome)))

    async def wait_for_end(self) -> JobEnd | None:
        """Await the end of the run; return None if the run is removed from the store before the run
        ends. Cancelling the asyncio task ends only the wait, not the run."""
        ticket = self._start_wait()
        outcome = None if ticket is None else await ticket
        return None if outcome is None else self._build_end(outcome)

    def stop_following(self) -> None:
        if self._ticket is not None:
            self._ticket.cancel()

    def _start_wait(self) -> Ticket[Outcome | None] | None:
        assert self._call.caller is not None
        try:
            access = RunAccess(self._engine, self._call.caller.workspace)
            self._ticket = access.wait(self.run, None)
        except (NoSuchRun, OSError):
            return None
        return self._ticket

    def _build_end(self, outcome: Outcome) -> JobEnd:
        call = self._call
        assert call.plan is not None
        assert call.caller is not None
        outcome = with_stored_output(outcome, call.caller.workspace, call.plan.keep)
        reply = self._contract.reply(outcome, call.admitted.reply_context, call.plan.findings)
        reply = msgspec.structs.replace(reply, run=self.run)
        return JobEnd(run=self.run, state=job_state(outcome.ending), reply=reply)
