"""The one door. A tool marries a contract to an engine and answers calls.

    arguments → Admitted → Decision → Ticket → Outcome → Reply

The type changes at each step and never changes back. Only the tool knows contract, decision and
ending, so it also writes the audit line.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from nacre import settings
from nacre.contracts import registry
from nacre.contracts.contract import Contract, Reply
from nacre.contracts.provider_formats import Format, for_provider
from nacre.engine import leftover_pipes
from nacre.engine.engine import Engine
from nacre.model import requests
from nacre.model.cancel import CancelToken
from nacre.model.events import Listener, Listening
from nacre.model.ids import check_session_name
from nacre.model.outcome import NotStarted, Outcome
from nacre.model.plan import OpenStdin, Plan, Streams
from nacre.model.refusals import AnyRefusal, Refused
from nacre.model.requests import Done, Listing, Response, Result, Signal
from nacre.model.signals import check_signal
from nacre.prepare.decide import decide
from nacre.runs.dispatch import Dispatcher, Placement, hand_over_leftover
from nacre.store.audit_log import AuditLog
from nacre.store.store import Store
from nacre.tool.call_log import Call, CallLog, check_response
from nacre.tool.caller_factory import CallerFactory, current_directory, cwd_or_dot

if TYPE_CHECKING:
    from nacre.runs.handle import RunHandle
    from nacre.sessions.handle import SessionHandle

Listen = Listener | Listening | None


class Tool:
    """A shell for an agent, speaking one contract.

    May be called from many threads and tasks at once. Closing it (or leaving its `with` block)
    stops the calls that are still being waited for.
    """

    def __init__(
        self,
        contract: str = registry.DEFAULT,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
        tools: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        session: str | None = None,
        max_wait: float | None = None,
        place: Placement = "auto",
        engine: Engine | None = None,
    ) -> None:
        """`env` replaces the environment that commands inherit; `tools` names what else the
        agent could call; `session` names a shell that remembers, also for the next tool of that
        name here; `max_wait` is how many seconds a call may block, under a contract that
        can hand back what still runs then (nacre and pi); `place` says where commands run: "here",
        in the "warden", or ("auto") there when they may outlive the call; `engine` is for fronts
        whose process is nacre's own: closing the tool does not close it.
        """
        if place not in ("auto", "here", "warden"):
            raise ValueError(f"place {place!r} is unknown; use 'auto', 'here' or 'warden'")
        self._cwd = None if cwd is None else os.path.abspath(os.fsencode(cwd))
        self.settings = settings.load(contract, self._cwd or cwd_or_dot(), options or {})
        self.contract = registry.build_contract(contract, self.settings.option_values)
        if max_wait is not None:
            if not max_wait >= 0:
                raise ValueError(f"max_wait={max_wait} makes no sense; it is 0 or more seconds")
            self.contract = self.contract.with_max_wait(max_wait)
        given = None if env is None else {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
        if isinstance(tools, str):
            raise ValueError(f"tools must be a list of names, not {tools!r}; write [{tools!r}]")
        self._borrowed = engine is not None
        self._engine = engine or Engine(
            keep_loop=True,
            prewarm=True,
            on_leftover=leftover_pipes.park if place == "here" else hand_over_leftover,
        )
        self._audit = AuditLog()
        self._store = Store(self.settings.store_limits)
        self._spill = self.settings.spill
        self._dispatcher = Dispatcher(self._engine, self._store, place)
        self._log = CallLog(self._audit, self.contract.name)
        self._name = _check_session_name(session, self.contract)
        self._caller_factory = CallerFactory(
            self._engine,
            env=given,
            inherits_env=given is None or self._borrowed,
            tools=tuple(tools),
            session=self._name,
            has_sessions=self.contract.has_sessions,
        )
        self._unnamed_sessions: set[tuple[str, str]] = set()  # sessions that end with us

    def call(
        self,
        arguments: Mapping[str, Any],
        *,
        tool: str = "bash",
        listen: Listen = None,
        cancel: CancelToken | None = None,
    ) -> Reply:
        """Answer one tool call. Never raises for anything the model could have caused."""
        call = Call(tool, arguments)
        try:
            with _Guard(self, call, call.abandon):
                self._start(call, listen, cancel)
                answer = call.wait()
        except Refused as refused:
            return self.contract.reply_to_refusal(refused.refusal)
        return self._reply(call, answer)

    async def acall(
        self,
        arguments: Mapping[str, Any],
        *,
        tool: str = "bash",
        listen: Listen = None,
        cancel: CancelToken | None = None,
    ) -> Reply:
        """The same for asyncio. Cancelling the task stops the command, and is raised again when all
        that it had started is gone."""
        call = Call(tool, arguments)
        try:
            with _Guard(self, call, call.cancel):
                self._start(call, listen, cancel)
                answer = await call.await_result()
        except Refused as refused:
            return self.contract.reply_to_refusal(refused.refusal)
        return self._reply(call, answer)

    def begin(
        self,
        arguments: Mapping[str, Any],
        then: Callable[[Reply], object],
        *,
        tool: str = "bash",
        by_user: bool = False,
        listen: Listen = None,
        cancel: CancelToken | None = None,
    ) -> None:
        """The same for one who makes the engine's steps himself: `then` gets the reply, in one of
        them, or now. `by_user`: a command of the user's own, where the contract has such."""
        call = Call(tool, arguments, by_user=by_user)
        try:
            with _Guard(self, call, call.abandon):
                self._start(call, listen, cancel)
        except Refused as refused:
            then(self.contract.reply_to_refusal(refused.refusal))
            return
        assert call.ticket is not None
        call.ticket.then(lambda reached: then(self._reply_to_response(call, reached)))

    def answer(
        self,
        arguments: Mapping[str, Any],
        *,
        tool: str = "bash",
        timeout: float | None = None,
        listen: Listen = None,
        cancel: CancelToken | None = None,
    ) -> Outcome:
        """Stop at the outcome, for fronts that want no words. Raises Refused.

        `timeout` overrides the contract's limit; infinity is no limit.
        """
        call = Call(tool, arguments)
        with _Guard(self, call, call.abandon):
            self._start(call, listen, cancel, lambda request: _wait_to_end(request, timeout))
            outcome = call.wait()
            assert isinstance(outcome, Outcome)
        self._log.end(call, outcome)
        return outcome

    async def aanswer(
        self,
        arguments: Mapping[str, Any],
        *,
        tool: str = "bash",
        timeout: float | None = None,
        listen: Listen = None,
        cancel: CancelToken | None = None,
    ) -> Outcome:
        """The same for asyncio."""
        call = Call(tool, arguments)
        with _Guard(self, call, call.cancel):
            self._start(call, listen, cancel, lambda request: _wait_to_end(request, timeout))
            outcome = await call.await_result()
            assert isinstance(outcome, Outcome)
        self._log.end(call, outcome)
        return outcome

    def start(
        self,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        interactive: bool = False,
    ) -> "RunHandle":
        """Have a command run in the warden, whatever the contract says about waiting, and return
        at once. Raises Refused. `interactive`: its stdin stays open, to be written to."""
        call = Call("bash", arguments)
        with _Guard(self, call, call.abandon):
            self._start(call, None, None, lambda request: _detached(request, timeout, interactive))
            answer = call.wait()
        self._log.end(call, answer)
        if isinstance(answer, Outcome) and isinstance(answer.ending, NotStarted):
            raise Refused(answer.ending.why)
        assert not isinstance(answer, Listing)
        return self.run(answer.run)

    def runs(self, last: int = 20) -> "list[RunHandle]":
        """The runs of this workspace: all that live, and the last of those that have ended, the
        newest first."""
        from nacre.runs.handle import RunHandle
        from nacre.store.listing import list_runs

        here = self.workspace
        return [RunHandle(run, here) for run in list_runs(here, last)]

    def run(self, id: str | int) -> "RunHandle":
        """One of them: `r17` or 17. Raises LookupError, also for a run of another workspace."""
        from nacre.runs.handle import RunHandle
        from nacre.store import stored_run

        here = self.workspace
        return RunHandle(stored_run.find_run(stored_run.parse_run_id(str(id)), here), here)

    def restart(self) -> None:
        """Have the tool's own shell begin anew, where the contract has one. What it has left
        running goes on. Raises SessionProblem when a command of it runs."""
        if self._name:
            with suppress(LookupError):
                self.session(self._name).reset()
        else:
            self._caller_factory.new_session()

    def sessions(self) -> "list[SessionHandle]":
        """The shells of this workspace that remember and have a name, those used last first."""
        from nacre.sessions import handle

        return handle.list_sessions(self._caller_factory.at(self.cwd).workspace_key)

    def session(self, name: str) -> "SessionHandle":
        """One of them, of this contract. Raises LookupError."""
        from nacre.sessions import handle

        return handle.find_session(
            self._caller_factory.at(self.cwd).workspace_key, name, self.contract.name
        )

    def signal(self, run: str, number: int) -> Done:
        """Send a signal to everything that a live run of this tool has started."""
        check_signal(number)
        return self._engine.signal(Signal(run=run, signal=number))

    def specs(self, format: Format = "anthropic") -> list[dict[str, Any]]:
        """The tools as a model provider wants them."""
        specs = self.contract.specs(self._caller_factory.at(self.cwd))
        return [for_provider(spec, format) for spec in specs]

    @property
    def session_name(self) -> str:
        """Of the session that all of its calls belong to; nothing where it has none of a name."""
        return self._name

    @property
    def cwd(self) -> bytes:
        """Where its commands run that say nothing else."""
        return self._cwd or cwd_or_dot()

    @property
    def workspace(self) -> bytes:
        """The directory to which its runs belong."""
        return self._caller_factory.at(self.cwd).workspace

    @property
    def audit_problem(self) -> str | None:
        """Why the last call is not in the audit log, if it is not."""
        return self._audit.problem

    def close(self) -> None:
        if not self._borrowed:
            self._engine.close()
        if self._unnamed_sessions:
            from nacre.store import session_files

            while self._unnamed_sessions:
                session_files.delete_session(*self._unnamed_sessions.pop())
        self._store.close()
        self._audit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(
        self,
        call: Call,
        listen: Listen,
        cancel: CancelToken | None,
        change: Callable[[requests.StartRun], requests.StartRun] | None = None,
    ) -> None:
        """`change` is made to what the contract asks for."""
        call.caller = caller = self._caller_factory.at(self._cwd or current_directory())
        if call.by_user:
            admitted = self.contract.admit_user_command(call.arguments, caller)
        else:
            admitted = self.contract.admit(call.tool, call.arguments, caller)
        call.admitted = admitted
        request = admitted.request
        if isinstance(request, requests.PollJobs):
            call.ticket = self._dispatcher.poll_jobs(request, caller.workspace, cancel)
            return
        if not isinstance(request, requests.StartRun):
            call.ticket = self._dispatcher.run_job_request(request, caller.workspace, cancel)
            return
        caller = admitted.caller or caller
        decision = decide(request.plan, admitted.steps, caller)
        if decision.refusal is not None:
            raise Refused(decision.refusal)
        plan = decision.plan
        if self._spill is not None and plan.spill is not None:
            spill = msgspec.structs.replace(self._spill, when=plan.spill.when)
            plan = msgspec.structs.replace(plan, spill=spill)
        request = msgspec.structs.replace(request, plan=plan, workspace=caller.workspace)
        if change is not None:
            request = change(request)
        plan = call.plan = request.plan
        if plan.session is not None and not plan.session.name:
            self._unnamed_sessions.add((plan.session.workspace_key, plan.session.key))
        call.ticket = self._dispatcher.start(request, self._listening(listen), cancel)
        try:
            # The command runs already: what is done here need not be done at its end.
            self._log.begin(call, plan.command.cwd)
            self._store.clean_up_sometimes()
        except BaseException:
            call.abandon()
            raise

    def _listening(self, listen: Listen) -> Listening | None:
        """A plain function hears as often as the contract says."""
        if listen is None or isinstance(listen, Listening):
            return listen
        return Listening(listener=listen, every=self.contract.event_interval)

    def _reply_to_response(self, call: Call, reached: Response | Listing) -> Reply:
        try:
            return self._reply(call, check_response(reached))
        except Refused as refused:
            self._log_refusal(call, refused.refusal)
            return self.contract.reply_to_refusal(refused.refusal)

    def _reply(self, call: Call, answer: Result) -> Reply:
        self._log.end(call, answer)
        findings = () if call.plan is None else call.plan.findings
        reply = self.contract.reply(answer, call.admitted.reply_context, findings)
        if isinstance(answer, Listing):
            return reply
        return msgspec.structs.replace(reply, run=answer.run)

    def _log_refusal(self, call: Call, refusal: AnyRefusal) -> None:
        call.caller = call.caller or self._caller_factory.at(self.cwd)
        self._log.refuse(call, refusal)


class _Guard:
    """Around one call: logs a refusal, and stops the command when an exception interrupts the call,
    perhaps before the wait has begun."""

    __slots__ = ("_call", "_stop", "_tool")

    def __init__(self, tool: Tool, call: Call, stop: Callable[[], None]) -> None:
        self._tool = tool
        self._call = call
        self._stop = stop

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Refused):
            self._tool._log_refusal(self._call, error.refusal)
        elif error is not None:
            self._stop()
            self._tool._log.end_if_answered(self._call)


def _check_session_name(session: str | None, contract: Contract) -> str:
    """Raises ValueError."""
    if session is None:
        return ""
    if not contract.has_sessions:
        raise ValueError(f"{contract.name} has no sessions: leave session out, or take nacre or pi")
    return check_session_name(session)


def _wait_to_end(request: requests.StartRun, timeout: float | None) -> requests.StartRun:
    """To be waited for to its end, whatever the contract says."""
    plan = request.plan if timeout is None else _with_timeout(request.plan, timeout)
    return msgspec.structs.replace(request, plan=plan, wait_limit=None)


def _detached(
    request: requests.StartRun, timeout: float | None, interactive: bool
) -> requests.StartRun:
    """Not to be waited for at all."""
    plan = _with_timeout(request.plan, float("inf") if timeout is None else timeout)
    stdin = OpenStdin() if interactive else plan.stdin
    # Nobody gets the two streams as a reply: whoever reads it wants them in order.
    plan = msgspec.structs.replace(plan, lane=None, stdin=stdin, streams=Streams.MERGED)
    if plan.session is not None:
        apart = msgspec.structs.replace(plan.session, detached=True)
        plan = msgspec.structs.replace(plan, session=apart)
    return msgspec.structs.replace(request, plan=plan, wait_limit=0.0)


def _with_timeout(plan: Plan, timeout: float) -> Plan:
    limit = None if timeout == float("inf") else timeout
    limits = msgspec.structs.replace(plan.limits, timeout=limit)
    return msgspec.structs.replace(plan, limits=limits)
