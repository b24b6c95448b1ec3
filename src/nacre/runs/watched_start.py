"""Starting a run in the warden (nacre's daemon) with wait conditions or an idempotency key.

    start request  -> first of: the response; a condition is met, and the run is detached
    AlreadyStarted -> find the run of the earlier call; wait for it as for a run of this call

The calling process, not the warden, checks the conditions in a call's argument `until` (module
`runs/conditions`). When a condition in a call's argument `until` is met, the calling process tells
the warden to detach the run, which then continues in the background.
"""

import signal as signals
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from nacre.engine.loop_context import LoopContext
from nacre.engine.supervisor import Operation
from nacre.eventloop import now
from nacre.model import requests
from nacre.model.outcome import Outcome
from nacre.model.refusals import CalledOff, Unavailable
from nacre.model.requests import (
    AlreadyStarted,
    ConditionMet,
    Rejected,
    Response,
    Running,
    WaitsForInput,
)
from nacre.runs.access import RunControl, find_run
from nacre.runs.conditions import wait_until_met
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
        response, met = await self._start_and_watch()
        if isinstance(response, AlreadyStarted):
            return await follow_earlier(response.run, self._request, self._context)
        if isinstance(response, Running) and met is not None:
            return msgspec.structs.replace(response, met=met)
        return response

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


async def follow_earlier(name: str, request: requests.StartRun, context: LoopContext) -> Response:
    """Wait for the run that an earlier call with the same idempotency key has started."""
    run = await _wait_for_start(name, request.workspace)
    if run is None:
        problem = f"an earlier call with the same request_id claimed {name} but did not start it"
        return Rejected(refusal=Unavailable(problem=f"{problem}; retry"))
    control = RunControl(context, request.workspace)
    ended: Outcome | WaitsForInput | ConditionMet | None = None
    try:
        end = control.wait_for_end(run, request.wait_limit, or_input=True)
        if request.until and run.ending is None:
            met = wait_until_met(request.until, run.number, request.workspace, context)
            ended = await first_of(end, met)
        else:
            ended = await end
    except WaitCancelled:
        # An earlier call started the run, so cancelling this call ends only its wait, not the run.
        pass
    if isinstance(ended, Outcome):
        return stored_run.build_outcome(_reload(run, request.workspace), request.plan.keep) or ended
    shell = run.start_entry.shell
    return Running(
        run=run.name,
        pid=shell.pid if shell else 0,
        seconds=run.seconds,
        output=run.capture(request.plan.keep),
        waits_for_input=isinstance(ended, WaitsForInput),
        met=None if ended is None or isinstance(ended, WaitsForInput) else ended,
    )


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
