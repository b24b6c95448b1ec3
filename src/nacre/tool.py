"""The one door. A tool marries a contract to an engine and answers calls.

    arguments → Admitted → Decision → Ticket → Outcome → Reply

The type changes at each step and never changes back. Only the tool knows contract, decision and
ending, so it also writes the audit line.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from nacre import asks, contracts, settings
from nacre.asks import Answer, Done, Earlier, Listing, No, Reached, Running, Signal
from nacre.caller import Caller
from nacre.cancel import CancelToken
from nacre.contracts.contract import Admitted, Contract, Reply
from nacre.contracts.providers import Format, shaped
from nacre.contracts.sessions import session_name
from nacre.engine.engine import Engine, Ticket
from nacre.events import Listener, Listening
from nacre.findings import Dropped
from nacre.loop import now
from nacre.outcome import Capture, NotStarted, Outcome
from nacre.place import Place, Where
from nacre.plan import Held, Plan, Streams
from nacre.prepare.decide import decide
from nacre.refusals import (
    AnyRefusal,
    BadArguments,
    BadDirectory,
    CalledOff,
    DirectoryProblem,
    Refused,
)
from nacre.signals import check_signal
from nacre.store import journal
from nacre.store.audit import Audit, Line
from nacre.store.links import resolvers
from nacre.store.store import Store
from nacre.store.workspace import workspace
from nacre.text import decode

if TYPE_CHECKING:
    from nacre.handle import RunHandle
    from nacre.remembered import SessionHandle

Listen = Listener | Listening | None


class _Call:
    """A call under way; what it has so far."""

    caller: Caller | None = None
    ticket: Ticket[Outcome] | Ticket[Reached] | Ticket[Listing] | Ticket[Listing | No] | None = None
    admitted: Admitted
    plan: Plan | None = None
    line: Line | None = None

    def __init__(self, tool: str, arguments: object, *, by_user: bool = False) -> None:
        self.tool = tool
        self.by_user = by_user
        self.arguments = arguments

    def wait(self) -> Answer:
        """Raises Refused."""
        assert self.ticket is not None
        return _answer(self.ticket.wait())

    def abandon(self) -> None:
        if self.ticket is not None:
            self.ticket.abandon()


class Tool:
    """A shell for an agent, speaking one contract.

    May be called from many threads and tasks at once. Closing it (or leaving its `with` block)
    stops the calls that are still being waited for.
    """

    def __init__(
        self,
        contract: str = contracts.DEFAULT,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
        tools: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        session: str | None = None,
        max_wait: float | None = None,
        place: Where = "auto",
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
        self.settings = settings.load(contract, self._cwd or _here_or_nowhere(), options or {})
        self.contract = contracts.make(contract, self.settings.chosen)
        if max_wait is not None:
            if not max_wait >= 0:
                raise ValueError(f"max_wait={max_wait} makes no sense; it is 0 or more seconds")
            self.contract = self.contract.within(max_wait)
        self._env = (
            None if env is None else {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
        )
        if isinstance(tools, str):
            raise ValueError(f"tools must be a list of names, not {tools!r}; write [{tools!r}]")
        self._tools = tuple(tools)
        self._borrowed = engine is not None
        self._engine = engine or Engine(keeps=True, warms=True)
        self._audit = Audit()
        self._store = Store(self.settings.bounds)
        self._spill = self.settings.spill
        self._place = Place(self._engine, self._store, place)
        self._known: Caller | None = None
        self._name = _checked_name(session, self.contract)
        self._session = self._name or os.urandom(12).hex()
        self._passing: set[tuple[str, str]] = set()  # sessions that end with us

    def call(
        self,
        arguments: Mapping[str, Any],
        *,
        tool: str = "bash",
        listen: Listen = None,
        cancel: CancelToken | None = None,
    ) -> Reply:
        """Answer one tool call. Never raises for anything the model could have caused."""
        call = _Call(tool, arguments)
        try:
            self._begin(call, listen, cancel)
            answer = call.wait()
        except Refused as refused:
            return self._refused(call, refused.refusal)
        except BaseException:  # perhaps before the wait had begun
            call.abandon()
            self._log_if_over(call)
            raise
        return self._spoken(call, answer)

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
        call = _Call(tool, arguments)
        try:
            self._begin(call, listen, cancel)
            assert call.ticket is not None
            answer = _answer(await call.ticket)
        except Refused as refused:
            return self._refused(call, refused.refusal)
        except BaseException:
            if call.ticket is not None:
                call.ticket.cancel()
            self._log_if_over(call)
            raise
        return self._spoken(call, answer)

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
        call = _Call(tool, arguments, by_user=by_user)
        try:
            self._begin(call, listen, cancel)
        except Refused as refused:
            then(self._refused(call, refused.refusal))
            return
        assert call.ticket is not None
        call.ticket.then(lambda reached: then(self._replied(call, reached)))

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
        call = _Call(tool, arguments)
        try:
            self._begin(call, listen, cancel, lambda ask: _patient(ask, timeout))
            outcome = call.wait()
            assert isinstance(outcome, Outcome)
        except Refused as refused:
            self._refused(call, refused.refusal)
            raise
        except BaseException:
            call.abandon()
            self._log_if_over(call)
            raise
        self._log(call, outcome)
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
        call = _Call(tool, arguments)
        try:
            self._begin(call, listen, cancel, lambda ask: _patient(ask, timeout))
            assert call.ticket is not None
            outcome = _answer(await call.ticket)
            assert isinstance(outcome, Outcome)
        except Refused as refused:
            self._refused(call, refused.refusal)
            raise
        except BaseException:
            if call.ticket is not None:
                call.ticket.cancel()
            self._log_if_over(call)
            raise
        self._log(call, outcome)
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
        call = _Call("bash", arguments)
        try:
            self._begin(call, None, None, lambda ask: _detached(ask, timeout, interactive))
            answer = call.wait()
        except Refused as refused:
            self._refused(call, refused.refusal)
            raise
        self._log(call, answer)
        if isinstance(answer, Outcome) and isinstance(answer.ending, NotStarted):
            raise Refused(answer.ending.why)
        assert not isinstance(answer, Listing)
        return self.run(answer.run)

    def runs(self, last: int = 20) -> "list[RunHandle]":
        """The runs of this workspace: all that live, and the last of those that have ended, the
        newest first."""
        from nacre.handle import RunHandle
        from nacre.store.listing import listed

        here = self.workspace
        return [RunHandle(run, here) for run in listed(here, last)]

    def run(self, id: str | int) -> "RunHandle":
        """One of them: `r17` or 17. Raises LookupError, also for a run of another workspace."""
        from nacre.handle import RunHandle
        from nacre.store import reading

        here = self.workspace
        return RunHandle(reading.find(reading.number(str(id)), here), here)

    def restart(self) -> None:
        """Have the tool's own shell begin anew, where the contract has one. What it has left
        running goes on. Raises SessionProblem when a command of it runs."""
        if self._name:
            with suppress(LookupError):
                self.session(self._name).reset()
        else:
            self._session = os.urandom(12).hex()
            self._known = None

    def sessions(self) -> "list[SessionHandle]":
        """The shells of this workspace that remember and have a name, those used last first."""
        from nacre import remembered

        return remembered.listed(self._caller(self.cwd).place)

    def session(self, name: str) -> "SessionHandle":
        """One of them, of this contract. Raises LookupError."""
        from nacre import remembered

        return remembered.find(self._caller(self.cwd).place, name, self.contract.name)

    def signal(self, run: str, number: int) -> Done:
        """Send a signal to everything that a live run of this tool has started."""
        check_signal(number)
        return self._engine.signal(Signal(run=run, signal=number))

    def specs(self, format: Format = "anthropic") -> list[dict[str, Any]]:
        """The tools as a model provider wants them."""
        specs = self.contract.specs(self._caller(self.cwd))
        return [shaped(spec, format) for spec in specs]

    @property
    def cwd(self) -> bytes:
        """Where its commands run that say nothing else."""
        return self._cwd or _here_or_nowhere()

    @property
    def workspace(self) -> bytes:
        """The directory to which its runs belong."""
        return self._caller(self.cwd).workspace

    @property
    def audit_problem(self) -> str | None:
        """Why the last call is not in the audit log, if it is not."""
        return self._audit.problem

    def close(self) -> None:
        if not self._borrowed:
            self._engine.close()
        if self._passing:
            from nacre.store import sessions

            while self._passing:
                sessions.forget(*self._passing.pop())
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

    def _begin(
        self,
        call: _Call,
        listen: Listen,
        cancel: CancelToken | None,
        change: Callable[[asks.Run], asks.Run] | None = None,
    ) -> None:
        """`change` is made to what the contract asks for."""
        call.caller = caller = self._caller(self._cwd or _here())
        if call.by_user:
            admitted = self.contract.admit_own(call.arguments, caller)
        else:
            admitted = self.contract.admit(call.tool, call.arguments, caller)
        call.admitted = admitted
        ask = admitted.ask
        if isinstance(ask, asks.Jobs):
            call.ticket = self._place.jobs(ask, caller.workspace, cancel)
            return
        if not isinstance(ask, asks.Run):
            call.ticket = self._place.attend(ask, caller.workspace, cancel)
            return
        caller = admitted.caller or caller
        decision = decide(ask.plan, admitted.steps, caller)
        if decision.refusal is not None:
            raise Refused(decision.refusal)
        plan = decision.plan
        if self._spill is not None and plan.spill is not None:
            spill = msgspec.structs.replace(self._spill, when=plan.spill.when)
            plan = msgspec.structs.replace(plan, spill=spill)
        ask = msgspec.structs.replace(ask, plan=plan, workspace=caller.workspace)
        if change is not None:
            ask = change(ask)
        plan = call.plan = ask.plan
        if plan.session is not None and not plan.session.name:
            self._passing.add((plan.session.place, plan.session.key))
        call.ticket = self._place.begin(ask, self._heard(listen), cancel)
        try:
            # The command runs already: what is done here need not be done at its end.
            call.line = self._line(call, plan.command.cwd)
            self._store.tidy()
        except BaseException:
            call.abandon()
            raise

    def _heard(self, listen: Listen) -> Listening | None:
        """A plain function hears as often as the contract says."""
        if listen is None or isinstance(listen, Listening):
            return listen
        return Listening(listener=listen, every=self.contract.every)

    def _caller(self, cwd: bytes) -> Caller:
        """Made once for a directory: a tool stays in its workspace, whatever git does."""
        known = self._known  # another thread may stand elsewhere
        if known is None or known.cwd != cwd:
            place = workspace(cwd)
            key = _key(place) if self.contract.remembers else ""
            self._known = known = Caller(
                cwd=cwd,
                workspace=place,
                env=self._env,
                inherits=self._env is None or self._borrowed,
                place=key,
                session=self._session,
                session_name=self._name,
                stands=partial(_stands, self._engine, key),
                setup=_Setup(self._env, cwd),
                tools=self._tools,
                resolvers=resolvers(place),
                run_of=partial(_run_of, place),
            )
        return known

    def _replied(self, call: _Call, reached: Reached | Listing) -> Reply:
        try:
            return self._spoken(call, _answer(reached))
        except Refused as refused:
            return self._refused(call, refused.refusal)

    def _spoken(self, call: _Call, answer: Answer) -> Reply:
        self._log(call, answer)
        findings = () if call.plan is None else call.plan.findings
        reply = self.contract.reply(answer, call.admitted.said, findings)
        if isinstance(answer, Listing):
            return reply
        return msgspec.structs.replace(reply, run=answer.run)

    def _refused(self, call: _Call, refusal: AnyRefusal) -> Reply:
        call.caller = call.caller or self._caller(self.cwd)
        line = self._line(call, call.caller.cwd)
        rule = getattr(refusal, "rule", None)
        line.end(
            {
                "decision": "refuse",
                **({"rule": rule} if rule else {}),
                "refused": _why(refusal),
                "ending": "Refused",
            }
        )
        return self.contract.refused(refusal)

    def _log_if_over(self, call: _Call) -> None:
        """Nobody will have the answer; but what was run is in the log."""
        over = None if call.ticket is None else call.ticket.outcome
        if isinstance(over, Outcome | Running | Listing):
            self._log(call, over)

    def _line(self, call: _Call, cwd: bytes) -> Line:
        assert call.caller is not None
        command = call.arguments.get("command") if isinstance(call.arguments, Mapping) else None
        if call.tool == "job" and isinstance(call.arguments, Mapping):
            # What is written to a run may be a password.
            said = (call.arguments.get(name) for name in ("action", "run", "list", "poll"))
            command = " ".join(["job", *(each[:60] for each in said if isinstance(each, str))])
        return self._audit.begin(
            {
                "contract": self.contract.name,
                "tool": call.tool,
                "workspace": decode(call.caller.workspace),
                "command": command if isinstance(command, str) else None,
                "cwd": decode(cwd),
            }
        )

    def _log(self, call: _Call, answer: Answer) -> None:
        assert call.caller is not None
        rest = _logged(answer)
        for each in call.plan.findings if call.plan is not None else ():
            if isinstance(each, Dropped):
                rest["dropped"] = each.names
        cwd = call.caller.cwd if call.plan is None else call.plan.command.cwd
        line = call.line or self._line(call, cwd)
        line.end(rest)


def _key(place: bytes) -> str:
    try:
        return journal.key(place)
    except (OSError, ImportError):  # not even a descriptor to load what it takes
        return ""


# Functions, not methods: a tool that is forgotten shall be gone.


def _stands(engine: Engine, place: str, key: str) -> tuple[bytes | None, bool]:
    return engine.sessions().stands(place, key)


class _Setup:
    """Which snapshot there is of a user's own set-up. A change is noticed within a second."""

    _known = ""
    _until = 0.0

    def __init__(self, env: Mapping[bytes, bytes] | None, cwd: bytes) -> None:
        self._env = env
        self._cwd = cwd

    def __call__(self) -> str:
        if now() >= self._until:
            from nacre.store import snapshots  # only sessions have one

            env = os.environb if self._env is None else self._env
            self._known, self._until = snapshots.signature(env, self._cwd), now() + 1.0
        return self._known


def _checked_name(session: str | None, contract: Contract) -> str:
    """Raises ValueError."""
    if session is None:
        return ""
    if not contract.remembers:
        raise ValueError(f"{contract.name} has no sessions: leave session out, or take nacre or pi")
    return session_name(session)


def _run_of(place: bytes, pid: int) -> str | None:
    from nacre.store.listing import run_of  # only hints ask

    return run_of(pid, place)


def _answer(reached: Reached | Listing) -> Answer:
    """Raises Refused for what was not done."""
    match reached:
        case No(refusal=CalledOff() as why):
            return Outcome(run="u0", ending=NotStarted(why), output=Capture())
        case No(refusal=refusal):
            raise Refused(refusal)
        case Done() | Earlier():
            raise AssertionError(f"nobody asks for {reached!r}")
        case _:
            return reached


def _logged(answer: Answer) -> dict[str, object]:
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
        "ending": type(ending).__name__,
        "exit_code": answer.exit_code,
        "seconds": round(answer.seconds, 3),
        "stdout_bytes": answer.output.size,
        "stderr_bytes": answer.errors.size if answer.errors else None,
        "left_running": len(answer.left_running),
    }
    if isinstance(ending, NotStarted):
        rest["refused"] = _why(ending.why)
    return rest


def _why(refusal: AnyRefusal) -> str:
    """For the log, which has no values."""
    if isinstance(refusal, BadArguments):
        return refusal.problem.replace("{}", "…", 1)
    return str(refusal)


def _here() -> bytes:
    try:
        return os.getcwdb()
    except OSError:
        gone = BadDirectory(path=b".", problem=DirectoryProblem.MISSING)
        raise Refused(gone) from None


def _here_or_nowhere() -> bytes:
    try:
        return _here()
    except Refused:
        return b"."


def _patient(ask: asks.Run, timeout: float | None) -> asks.Run:
    """To be waited for to its end, whatever the contract says."""
    plan = ask.plan if timeout is None else _limited(ask.plan, timeout)
    return msgspec.structs.replace(ask, plan=plan, patience=None)


def _detached(ask: asks.Run, timeout: float | None, interactive: bool) -> asks.Run:
    """Not to be waited for at all."""
    plan = _limited(ask.plan, float("inf") if timeout is None else timeout)
    stdin = Held() if interactive else plan.stdin
    # Nobody gets the two streams as a reply: whoever reads it wants them in order.
    plan = msgspec.structs.replace(plan, lane=None, stdin=stdin, streams=Streams.MERGED)
    if plan.session is not None:
        apart = msgspec.structs.replace(plan.session, apart=True)
        plan = msgspec.structs.replace(plan, session=apart)
    return msgspec.structs.replace(ask, plan=plan, patience=0.0)


def _limited(plan: Plan, timeout: float) -> Plan:
    limit = None if timeout == float("inf") else timeout
    limits = msgspec.structs.replace(plan.limits, timeout=limit)
    return msgspec.structs.replace(plan, limits=limits)
