"""Shell tool: the entry point that connects a contract (dialect of the tool) with an engine and
answers an agent's calls.

    arguments → Admitted → Decision → Ticket → Outcome → Reply

Each stage of a tool call converts its input to the type of the next stage; a call never returns to
an earlier stage. The contract writes the reply texts, and the engine runs the planned command. The
tool writes a call's line in the audit log, because only the tool knows the contract, the decision
to run or refuse the command, and how the command ended.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from nacre import settings
from nacre.contracts import registry
from nacre.contracts.contract import Contract, Reply
from nacre.contracts.provider_formats import Format, for_provider
from nacre.engine import leftover_pipes
from nacre.engine.engine import Engine
from nacre.engine.ticket import run_in_thread
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
from nacre.store.url_resolvers import HostResolver, check_resolvers
from nacre.tool.call_log import Call, CallLog, check_response
from nacre.tool.caller_factory import CallerFactory, current_directory, cwd_or_dot
from nacre.tool.read_positions import ReadPositions, StoredReadPositions

if TYPE_CHECKING:
    from nacre.runs.handle import RunHandle
    from nacre.sessions.handle import SessionHandle
    from nacre.tool.detached_run import DetachedRun

OnDetach = Callable[["DetachedRun"], object]

Listen = Listener | Listening | None

# Seconds up to which a run counts as just started, so that a reply does not say what its processes
# do.
_JUST_STARTED: Final = 0.5
# Bytes of output up to which a reply is built on the caller's event loop.
_SMALL_OUTPUT: Final = 128 * 1024


class Tool:
    """Shell tool for an agent, under one contract (dialect of the tool).

    Several threads and asyncio tasks may call the tool at the same time. Closing the tool, or
    leaving its `with` block, stops the commands of calls that are still waiting.
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
        resolvers: Mapping[str, HostResolver] | None = None,
        max_wait: float | None = None,
        place: Placement = "auto",
        engine: Engine | None = None,
    ) -> None:
        """Load nacre's settings and build the contract (dialect of the tool) with its options.
        Raises ValueError for bad arguments.

        `env` replaces the environment that commands inherit. `tools` names other tools that the
        agent can call. `session` names a persistent shell; a later tool with the same session name
        in this workspace continues that shell. `resolvers` maps a URL scheme, such as `skill`, to a
        function that gets the part after `://` of an internal URL in a command and returns a path;
        the function raises LookupError for a URL that it does not know. `max_wait` is the maximum
        number of seconds that a call may block; only the `nacre` contract and the `pi` contract,
        which can detach a running command, use `max_wait`. `place` says where commands run: "here"
        for this process, "warden" for nacre's daemon, or "auto" for the daemon only if a command
        may outlive the call. `engine` is an engine that the tool uses but does not close; it is
        meant for nacre's own front ends, such as `nacre rpc`.
        """
        if place not in ("auto", "here", "warden"):
            raise ValueError(f"place {place!r} is unknown; use 'auto', 'here' or 'warden'")
        self._cwd = None if cwd is None else os.path.abspath(os.fsencode(cwd))
        self.settings = settings.load(contract, self._cwd or cwd_or_dot(), options or {})
        self.contract = registry.build_contract(contract, self.settings.option_values)
        if max_wait is not None:
            if not max_wait >= 0:
                raise ValueError(f"max_wait={max_wait} is not a number of seconds; give 0 or more")
            self.contract = self.contract.with_max_wait(max_wait)
        given = None if env is None else {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
        if isinstance(tools, str):
            raise ValueError(f"tools must be a list of names, not {tools!r}; write [{tools!r}]")
        check_resolvers(resolvers or {})
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
        self._positions: ReadPositions | StoredReadPositions = ReadPositions()
        self._name = _check_session_name(session, self.contract)
        self._caller_factory = CallerFactory(
            self._engine,
            env=given,
            inherits_env=given is None or self._borrowed,
            tools=tuple(tools),
            session=self._name,
            has_sessions=self.contract.has_sessions,
            resolvers=resolvers or {},
        )
        # Unnamed sessions that `close` deletes, each as (workspace key, session key).
        self._unnamed_sessions: set[tuple[str, str]] = set()

    def call(
        self,
        arguments: Mapping[str, Any],
        *,
        tool: str = "bash",
        listen: Listen = None,
        cancel: CancelToken | None = None,
    ) -> Reply:
        """Run one tool call and return the reply to the model. An error that the model could have
        caused becomes a reply, never an exception."""
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
        on_detach: OnDetach | None = None,
        reader: str = "",
    ) -> Reply:
        """Do the same as `call`, for asyncio. If the asyncio task is cancelled, the command is
        stopped, and CancelledError is raised again after the command's process tree has ended. If
        the call returns before its command has ended, the callback `on_detach` gets a
        `DetachedRun`, whose method `wait_for_end` awaits the end. `reader` names the caller among
        several callers of one tool: replies show each caller the output that is new to it."""
        call = Call(tool, arguments, reader=reader)
        try:
            with _Guard(self, call, call.cancel):
                self._start(call, listen, cancel)
                answer = await call.await_result()
        except Refused as refused:
            return self.contract.reply_to_refusal(refused.refusal)
        if _output_size(answer) > _SMALL_OUTPUT:
            reply = await run_in_thread(partial(self._reply, call, answer))
        else:
            reply = self._reply(call, answer)
        self._report_detached(call, answer, on_detach)
        return reply

    def begin(
        self,
        arguments: Mapping[str, Any],
        then: Callable[[Reply], object],
        *,
        tool: str = "bash",
        by_user: bool = False,
        listen: Listen = None,
        cancel: CancelToken | None = None,
        on_detach: OnDetach | None = None,
    ) -> None:
        """Do the same as `call`, for a thread that calls `Engine.step` itself. The callback `then`
        gets the reply, either before this method returns or in a later `Engine.step`. `by_user`
        marks a command that comes from the user instead of the model; only the `pi` contract
        accepts commands from the user. If the reply comes before the command has ended, the
        callback `on_detach` gets a `DetachedRun` after the reply."""
        call = Call(tool, arguments, by_user=by_user)
        try:
            with _Guard(self, call, call.abandon):
                self._start(call, listen, cancel)
        except Refused as refused:
            then(self.contract.reply_to_refusal(refused.refusal))
            return
        assert call.ticket is not None

        def on_response(reached: Response | Listing) -> None:
            then(self._reply_to_response(call, reached))
            self._report_detached(call, reached, on_detach)

        call.ticket.then(on_response)

    def answer(
        self,
        arguments: Mapping[str, Any],
        *,
        tool: str = "bash",
        timeout: float | None = None,
        listen: Listen = None,
        cancel: CancelToken | None = None,
    ) -> Outcome:
        """Run one tool call to its end and return the outcome, for front ends that need no reply
        text. Raises Refused.

        `timeout`, in seconds, replaces the timeout that the contract sets for the command; infinity
        means no timeout.
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
        """Do the same as `answer`, for asyncio."""
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
        """Start a command in the warden (nacre's daemon) and return a handle for its run at once,
        even if the contract would wait for the command. Raises Refused. `interactive` keeps the
        command's stdin open for later writes."""
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
        """Return handles for all live runs of this workspace, followed by handles for at most
        `last` ended runs, each group with the newest run first."""
        from nacre.runs.handle import RunHandle
        from nacre.store.listing import list_runs

        here = self.workspace
        return [RunHandle(run, here) for run in list_runs(here, last)]

    def run(self, id: str | int) -> "RunHandle":
        """Return the handle of one run of this workspace, by a run id such as `r17` or 17. Raises
        LookupError for an unknown id, and for a run of another workspace."""
        from nacre.runs.handle import RunHandle
        from nacre.store import stored_run

        here = self.workspace
        return RunHandle(stored_run.find_run(stored_run.parse_run_id(str(id)), here), here)

    def restart(self) -> None:
        """Reset the persistent shell of this tool, under a contract with sessions. A reset of
        the persistent shell does not end processes that the shell left running. Raises
        SessionProblem if the tool has a named session in which a command is running."""
        if self._name:
            with suppress(LookupError):
                self.session(self._name).reset()
        else:
            self._caller_factory.new_session()

    def sessions(self) -> "list[SessionHandle]":
        """Return the named sessions of this workspace, the most recently used session first."""
        from nacre.sessions import handle

        return handle.list_sessions(self._caller_factory.at(self.cwd).workspace_key)

    def session(self, name: str) -> "SessionHandle":
        """Return a session of this workspace and contract by its name. Raises LookupError."""
        from nacre.sessions import handle

        return handle.find_session(
            self._caller_factory.at(self.cwd).workspace_key, name, self.contract.name
        )

    def signal(self, run: str, number: int) -> Done:
        """Send a signal to the process tree of a live run of this tool."""
        check_signal(number)
        return self._engine.signal(Signal(run=run, signal=number))

    def store_positions(self) -> None:
        """Keep in the store how far replies have shown the output of each run, so that the next
        process that calls a tool in this workspace knows it. Without this method, each `Tool`
        object has its own positions."""
        self._positions = StoredReadPositions()

    def specs(self, format: Format = "anthropic") -> list[dict[str, Any]]:
        """Return the declarations of the contract's tools in the format of a model provider's
        API."""
        specs = self.contract.specs(self._caller_factory.at(self.cwd))
        return [for_provider(spec, format) for spec in specs]

    @property
    def session_name(self) -> str:
        """Name of the session that all calls share; empty if the tool has no named session."""
        return self._name

    @property
    def cwd(self) -> bytes:
        """Default working directory of the tool's commands."""
        return self._cwd or cwd_or_dot()

    @property
    def workspace(self) -> bytes:
        """Workspace (usually the git top level) to which the tool's runs belong."""
        return self._caller_factory.at(self.cwd).workspace

    @property
    def audit_problem(self) -> str | None:
        """Reason why the last call could not be written to the audit log; None if the call was
        written."""
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
        """Start a tool call; the function `change`, if given, modifies the contract's request
        before the command starts."""
        call.caller = caller = self._caller_factory.at(self._cwd or current_directory())
        if call.tool != "bash":
            position = partial(self._positions.read, call.reader)
            caller = msgspec.structs.replace(caller, read_position=position)
        if call.by_user:
            admitted = self.contract.admit_user_command(call.arguments, caller)
        else:
            admitted = self.contract.admit(call.tool, call.arguments, caller)
        call.admitted = admitted
        request = admitted.request
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
            # The audit line is begun and the store is cleaned up while the command runs, so that
            # this work does not delay the reply.
            self._log.begin(call, plan.command.cwd)
            self._store.clean_up_sometimes()
        except BaseException:
            call.abandon()
            raise

    def _listening(self, listen: Listen) -> Listening | None:
        """Return the listener for a run's output as a `Listening`. If the listener is a plain
        function, it gets an event at most every `event_interval` seconds, a value of the
        contract."""
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
        if isinstance(answer, requests.Running):
            answer = self._with_activity(answer)
        reply = self.contract.reply(answer, call.admitted.reply_context, findings)
        self._positions.write(call.reader, reply.read_to)
        if isinstance(answer, Listing):
            return reply
        return msgspec.structs.replace(reply, run=answer.run)

    def _with_activity(self, running: requests.Running) -> requests.Running:
        """Add what the run's processes do, unless the run has just started."""
        if running.seconds < _JUST_STARTED:
            return running
        from nacre.runs.inspect import read_activity

        return msgspec.structs.replace(running, activity=read_activity(running.run, self.workspace))

    def _report_detached(self, call: Call, answer: object, on_detach: OnDetach | None) -> None:
        if on_detach is not None and isinstance(answer, requests.Running):
            from nacre.tool.detached_run import DetachedRun

            on_detach(DetachedRun(answer.run, call, self.contract, self._engine))

    def _log_refusal(self, call: Call, refusal: AnyRefusal) -> None:
        call.caller = call.caller or self._caller_factory.at(self.cwd)
        self._log.refuse(call, refusal)


class _Guard:
    """Context manager around one tool call; if the call is refused, `_Guard` writes the refusal to
    the audit log. If an exception interrupts the tool call, even before the wait for its response
    begins, `_Guard` stops the command."""

    __slots__ = ("_call", "_stop", "_tool")

    def __init__(self, tool: Tool, call: Call, stop: Callable[[], None]) -> None:
        self._tool = tool
        self._call = call
        self._stop = stop

    def __enter__(self) -> None:
        """Do nothing."""

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
    """Check a session name and return it; return an empty string for None. Raises ValueError."""
    if session is None:
        return ""
    if not contract.has_sessions:
        raise ValueError(f"{contract.name} has no sessions: leave session out, or take nacre or pi")
    return check_session_name(session)


def _wait_to_end(request: requests.StartRun, timeout: float | None) -> requests.StartRun:
    """Return the request without a wait limit, so that the call waits for the end of the command;
    `timeout`, if given, becomes the command's timeout."""
    plan = request.plan if timeout is None else _with_timeout(request.plan, timeout)
    return msgspec.structs.replace(request, plan=plan, wait_limit=None)


def _detached(
    request: requests.StartRun, timeout: float | None, interactive: bool
) -> requests.StartRun:
    """Return the request with a wait limit of zero, so that the run is detached at once."""
    plan = _with_timeout(request.plan, float("inf") if timeout is None else timeout)
    stdin = OpenStdin() if interactive else plan.stdin
    # stdout and stderr of a detached run are merged, because no reply shows them separately and a
    # reader of the run's log needs both in their original order.
    plan = msgspec.structs.replace(plan, lane=None, stdin=stdin, streams=Streams.MERGED)
    if plan.session is not None:
        apart = msgspec.structs.replace(plan.session, read_only=True)
        plan = msgspec.structs.replace(plan, session=apart)
    return msgspec.structs.replace(request, plan=plan, wait_limit=0.0)


def _with_timeout(plan: Plan, timeout: float) -> Plan:
    limit = None if timeout == float("inf") else timeout
    limits = msgspec.structs.replace(plan.limits, timeout=limit)
    return msgspec.structs.replace(plan, limits=limits)


def _output_size(answer: Result) -> int:
    """Return the size of the output from which a reply is built, in bytes."""
    if isinstance(answer, Listing):
        return sum(run.total.size for run in answer.runs)
    return answer.output.size
