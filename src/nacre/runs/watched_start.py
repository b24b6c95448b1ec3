"""Running something in the warden for one who waits for more than its end: for a line, a port, for
what an earlier call with the same request id has begun."""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from nacre.engine.engine import Engine
from nacre.engine.loop_context import LoopContext
from nacre.engine.supervisor import Operation
from nacre.eventloop import Callback, Timer, now
from nacre.model import requests
from nacre.model.outcome import Outcome
from nacre.model.refusals import CalledOff, Unavailable
from nacre.model.requests import AlreadyStarted, ConditionMet, Rejected, Response, Running
from nacre.runs.access import RunAccess
from nacre.runs.conditions import ConditionWatch
from nacre.store import stored_run
from nacre.store.stored_run import NoSuchRun, StoredRun

_START_TIME: Final = 5.0  # seconds that another may take to begin what it has claimed
_POLL_INTERVAL: Final = 0.02


class DetachableOperation(Operation, Protocol):
    def detach_now(self) -> None:
        """Have it handed back now."""
        ...


class WatchedStart:
    """Waited for like the run itself. Cancelled, it ends the run; but not one that somebody else
    has begun."""

    def __init__(
        self,
        request: requests.StartRun,
        engine: Engine,
        context: LoopContext,
        answer: Callable[[Response], None],
        make: Callable[[Callable[[Response], None]], DetachableOperation],
    ) -> None:
        """`make` makes the ask itself, and whoever it answers to is told. A request that others
        have begun is given as `AlreadyStarted` instead."""
        self._current: Operation | None = None
        self._met: ConditionMet | None = None
        self._watch: ConditionWatch | None = None
        self._stopping: ConditionWatch | None = None
        self._timer: Timer | None = None
        self._done = False
        self._request = request
        self._engine = engine
        self._context = context
        self._answer = answer
        self._start_operation = make(self._on_response)
        self.name = self._start_operation.name

    def start(self) -> None:
        self._current = self._start_operation
        if self._request.until and self._request.number is not None:
            self._begin_watch(self._request.number)
        self._start_operation.start()

    def cancel(self, number: int = 15) -> None:
        if self._current is not None:
            self._current.cancel(number)
        else:  # it has not begun, or we wait for another to begin it
            self._settle(Rejected(refusal=CalledOff()))

    def signal(self, number: int) -> None:
        if self._current is not None:
            self._current.signal(number)

    def resume(self) -> None:
        for each in (self._current, self._watch, self._stopping):
            if each is not None:
                each.resume()

    def _begin_watch(self, run: int) -> None:
        self._watch = ConditionWatch(
            self._request.until, run, self._request.workspace, self._context, self._on_met
        )
        self._watch.start()

    def _on_met(self, met: ConditionMet) -> None:
        self._met = met
        if self._current is self._start_operation:
            self._start_operation.detach_now()
        elif self._current is not None:
            self._current.cancel()  # that is only the waiting

    def _on_response(self, answer: Response) -> None:
        if isinstance(answer, AlreadyStarted):
            self._current = None
            self._stop(lambda: self._find_earlier(answer.run, now() + _START_TIME))
        elif isinstance(answer, Running) and self._met is not None:
            self._settle(msgspec.structs.replace(answer, met=self._met))
        else:
            self._settle(answer)

    def _find_earlier(self, name: str, deadline: float) -> None:
        """What an earlier call has begun, or is about to."""
        if self._done:
            return
        try:
            run = stored_run.find_run(stored_run.parse_run_id(name), self._request.workspace)
        except (NoSuchRun, OSError):
            if now() < deadline:
                self._timer = self._context.loop.call_later(
                    _POLL_INTERVAL, lambda: self._find_earlier(name, deadline)
                )
            else:
                problem = f"{name} was asked for with the same request_id, and has not begun"
                self._settle(Rejected(refusal=Unavailable(problem=f"{problem}; try again")))
            return
        self._follow(run)

    def _follow(self, run: StoredRun) -> None:
        reach = RunAccess(self._engine, self._request.workspace)
        waits_for_input = False

        def on_input_wait() -> None:
            nonlocal waits_for_input
            waits_for_input = True
            if self._current is not None:
                self._current.cancel()

        def on_end(outcome: Outcome | None) -> None:
            if outcome is not None:
                known = stored_run.build_outcome(self._read_again(run), self._request.plan.keep)
                self._settle(known or outcome)
            else:
                self._settle(self._build_running(run, waits_for_input=waits_for_input))

        self._current = reach.wait_operation(
            run, self._context, on_end, self._request.wait_limit, on_input_wait=on_input_wait
        )
        if self._request.until and run.ending is None:
            self._begin_watch(run.number)
        self._current.start()

    def _read_again(self, run: StoredRun) -> StoredRun:
        try:
            return stored_run.find_run(run.number, self._request.workspace)
        except (NoSuchRun, OSError):
            return run

    def _build_running(self, run: StoredRun, *, waits_for_input: bool) -> Running:
        shell = run.start_entry.shell
        return Running(
            run=run.name,
            pid=shell.pid if shell else 0,
            seconds=run.seconds,
            output=run.capture(self._request.plan.keep),
            waits_for_input=waits_for_input,
            met=self._met,
        )

    def _stop(self, then: Callback) -> None:
        if self._timer is not None:
            self._timer.cancel()
        watch, self._watch = self._watch, None
        if watch is None:
            then()
        else:
            self._stopping = watch
            watch.stop(then)

    def _settle(self, answer: Response) -> None:
        if not self._done:
            self._done = True
            self._stop(lambda: self._answer(answer))
