"""Starting a run in the warden (nacre's daemon) with wait conditions or an idempotency key.

    start request  -> first of: the response; a condition is met, and the run is detached
    shell ended    -> go on watching the conditions while a process of the run lives
    AlreadyStarted -> find the run of the earlier call; wait for it as for a run of this call

The calling process, not the warden, checks the conditions in a call's argument `until` (module
`runs/conditions`). When a condition in a call's argument `until` is met, the calling process tells
the warden to detach the run, which then continues in the background.
"""

import signal as signals
from collections.abc import Callable
from typing import Final, Protocol, TypeGuard

import msgspec

from nacre.engine.loop_context import LoopContext
from nacre.engine.supervisor import Operation
from nacre.eventloop import now
from nacre.model import requests
from nacre.model.outcome import Exited, Killed, Outcome
from nacre.model.refusals import CalledOff, Unavailable
from nacre.model.requests import AlreadyStarted, Rejected, Response, Running, WaitsForInput
from nacre.model.wait_conditions import ConditionMet
from nacre.runs.access import RunControl, find_run
from nacre.runs.conditions import wait_after_end, wait_until_met
from nacre.runs.inspect import find_leftovers, is_queued
from nacre.runs.sequence import Answer, SequenceOperation, TaskGroup, WaitCancelled, after, first_of
from nacre.store import stored_run
from nacre.store.stored_run import NoSuchRun, StoredRun

# seconds that a call waits for an earlier call with the same idempotency key to start its run
_START_TIME: Final = 5.0
# interval in seconds at which a call checks whether the run of an earlier call is in the store
_POLL_INTERVAL: Final = 0.02


class DetachableOperation(Operation, Protocol):
    def detach_now(self) -> None:
        """Detach the run (hand it back to the caller as an id) now, or as soon as it has
        started."""
        ...


class WatchedStart(SequenceOperation[Response]):
    """Operation that starts a run in the warden, and stops waiting for the run as soon as a
    condition in the call's argument `until` is met.

    Cancelling a call ends the run that the call started, but not a run that an earlier call with
    the same idempotency key started.
    """

    def __init__(
        self,
        request: requests.StartRun,
        context: LoopContext,
        answer: Callable[[Response], None],
        make: Callable[[Callable[[Response], None]], DetachableOperation],
    ) -> None:
        """`make` takes a callback and returns the operation that starts the run; the operation
        passes its response to that callback."""
        super().__init__(
            self._steps(), context.loop, answer, cancelled=Rejected(refusal=CalledOff())
        )
        self._request = request
        self._context = context
        self._response: Answer[Response] = Answer()
        self._start_operation = make(self._response.deliver)
        # whether this call itself starts the run, so that cancelling the call ends the run
        self._begun = False
        self.name = self._start_operation.name

    def cancel(self, number: int = signals.SIGTERM) -> None:
        if self._begun:
            self._start_operation.cancel(number)
        else:
            super().cancel(number)

    def signal(self, number: int) -> None:
        if self._begun:
            self._start_operation.signal(number)

    async def _steps(self) -> Response:
        began = now()
        response, met = await self._start_and_watch()
        if isinstance(response, AlreadyStarted):
            return await follow_earlier(response.run, self._request, self._context)
        if self._request.until and met is None and _may_have_leftovers(response):
            met = await self._watch_leftovers(response, now() - began)
        if met is not None and self._request.until.end_run:
            response = await self._end_met_run(response, met)
        if self._request.until and isinstance(response, Outcome):
            response = _refresh(response, self._request)
        if met is not None and isinstance(response, Running | Outcome):
            response = msgspec.structs.replace(response, met=met)
        return response

    async def _watch_leftovers(self, response: Outcome, waited: float) -> ConditionMet | None:
        """Go on watching the conditions after the run's shell has ended."""
        # From now on, cancelling the call ends only its wait: the command has ended.
        self._begun, self._cancelled_answer = False, response
        number = self._request.number or 0
        return await _wait_after_end(self._request, number, self._context, waited=waited)

    async def _end_met_run(self, response: Response, met: ConditionMet) -> Response:
        """End a run that has met the conditions; return the response about the ended run."""
        if not isinstance(response, Running | Outcome):
            return response
        # From now on, cancelling the call ends only its wait: the run is being ended anyway.
        self._begun, self._cancelled_answer = False, msgspec.structs.replace(response, met=met)
        return await _end_run(response, self._request, self._context)

    async def _start_and_watch(self) -> tuple[Response, ConditionMet | None]:
        """Start the run, and detach it if a condition in the call's argument `until` is met before
        the warden responds."""
        met: ConditionMet | None = None
        async with TaskGroup(self._start(), self._watch()) as group:
            start, watch = group.tasks
            if await group.first() is watch:
                met = watch.result()
                self._start_operation.detach_now()
            return await group.join(start), met

    async def _watch(self) -> ConditionMet:
        number = self._request.number
        if not self._request.until or number is None:
            await after(None)
        assert number is not None
        return await wait_until_met(
            self._request.until, number, self._request.workspace, self._context
        )

    async def _start(self) -> Response:
        """Start the run and wait for the warden's response. If this wait fails, for example by a
        KeyboardInterrupt, end the run, because no caller would know its id."""
        self._begun = True
        self._response.operation = self._start_operation
        try:
            self._start_operation.start()
            response = await self._response
        except GeneratorExit:
            raise
        except BaseException:
            self._start_operation.cancel()
            self._cancelled_answer = await self._response
            raise
        if isinstance(response, AlreadyStarted):
            self._begun = False  # from now on, a cancel ends only the wait of this call
        return response


async def _wait_after_end(
    request: requests.StartRun, number: int, context: LoopContext, *, waited: float
) -> ConditionMet | None:
    """Watch the conditions of a run whose shell has ended, for the rest of the wait limit: `waited`
    seconds of it are over."""
    limit = request.wait_limit
    return await wait_after_end(
        request.until,
        number,
        request.workspace,
        context,
        wait_limit=None if limit is None else max(0.0, limit - waited),
    )


def _may_have_leftovers(response: Response) -> TypeGuard[Outcome]:
    """Return whether the run's shell has ended without nacre: then its processes may live on."""
    return isinstance(response, Outcome) and isinstance(response.ending, Exited | Killed)


def _refresh(outcome: Outcome, request: requests.StartRun) -> Outcome:
    """Return the outcome of a run whose leftover processes were watched after the end of its shell:
    with the leftover processes that are alive now, and with the output that they have written."""
    try:
        run = find_run(outcome.run, request.workspace)
        left = find_leftovers([run])[run.name]
        stored = stored_run.build_outcome(run, request.plan.keep)
    except (NoSuchRun, OSError):
        return outcome
    output = outcome.output
    if stored is not None and stored.output.saved is not None:  # otherwise it cannot be read
        output = stored.output
    return msgspec.structs.replace(outcome, left_running=left, output=output)


async def _end_run(
    response: Running | Outcome, request: requests.StartRun, context: LoopContext
) -> Running | Outcome:
    """End a run and its leftover processes; return the outcome, or `response` if a process of the
    run could not be ended."""
    control = RunControl(context, request.workspace)
    try:
        run = find_run(response.run, request.workspace)
    except (NoSuchRun, OSError):
        return response
    left = find_leftovers([run])[run.name]
    ended = await control.end(run, grace=request.plan.limits.grace)
    stored = stored_run.build_outcome(_reload(run, request.workspace), request.plan.keep)
    outcome = stored or ended
    if outcome is None:
        return response
    left_now = find_leftovers([run])[run.name]
    return msgspec.structs.replace(
        outcome, left_running=left_now, terminated=left or outcome.terminated
    )


async def follow_earlier(name: str, request: requests.StartRun, context: LoopContext) -> Response:
    """Wait for the run that an earlier call with the same idempotency key has started."""
    run = await _wait_for_start(name, request.workspace)
    if run is None:
        problem = f"an earlier call with the same request_id claimed {name} but did not start it"
        return Rejected(refusal=Unavailable(problem=f"{problem}; retry"))
    control, began = RunControl(context, request.workspace), now()
    ended: Outcome | WaitsForInput | ConditionMet | None = None
    try:
        end = control.wait_for_end(run, request.wait_limit, or_input=True)
        if request.until and run.ending is None:
            watch = wait_until_met(request.until, run.number, request.workspace, context)
            ended = await first_of(end, watch)
        else:
            ended = await end
    except WaitCancelled:
        # An earlier call started the run, so cancelling this call ends only its wait, not the run.
        pass
    found = _reload(run, request.workspace)
    known = stored_run.build_outcome(found, request.plan.keep)
    met = None if isinstance(ended, Outcome | WaitsForInput) else ended
    if known is not None and _may_have_leftovers(known):
        if request.until and met is None:
            met = await _wait_after_end(request, run.number, context, waited=now() - began)
        known = _refresh(known, request)
    shell = run.start_entry.shell
    response: Running | Outcome = known or Running(
        run=run.name,
        pid=shell.pid if shell else 0,
        seconds=run.seconds,
        output=run.capture(request.plan.keep),
        waits_for_input=isinstance(ended, WaitsForInput),
        queued=is_queued(found),
    )
    if isinstance(ended, Outcome) and known is None:
        response = ended
    if met is not None and request.until.end_run:
        response = await _end_run(response, request, context)
    return msgspec.structs.replace(response, met=met)


async def _wait_for_start(name: str, workspace: bytes) -> StoredRun | None:
    """Return the run of an earlier call as soon as the run is in the store (nacre's files on disk);
    return None if the earlier call does not start the run within `_START_TIME` seconds."""
    deadline = now() + _START_TIME
    while True:
        try:
            return find_run(name, workspace)
        except (NoSuchRun, OSError):
            if now() >= deadline:
                return None
            await after(_POLL_INTERVAL)


def _reload(run: StoredRun, workspace: bytes) -> StoredRun:
    try:
        return stored_run.find_run(run.number, workspace)
    except (NoSuchRun, OSError):
        return run
