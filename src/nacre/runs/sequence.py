"""Operations written as sequences of waits: coroutines on nacre's own event loop.

    await control.write(run, b"yes\\n")
    first = await first_of(control.wait_for_end(run), wait_until_met(until), after(2.0))
    return report(run, first)

A `Task` drives one coroutine. A coroutine suspends only in the waits of this module: `after`,
`Answer`, `first_of` and `all_of`. asyncio's futures do not work here, because the thread that
waits for a ticket drives the event loop, and that thread may have no asyncio loop.

Cancelling a task raises `WaitCancelled` inside its coroutine. The coroutine may await its
cleanup, for example the end of a process that it has killed. `first_of` and `all_of` return after
every task that they started has finished.

`Sequence` is the operation that the engine starts, cancels and waits for. What the waits are about
does not belong here; see `runs/access` and `runs/conditions`.
"""

import signal as signals
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from nacre.eventloop import Callback, EventLoop

Result = TypeVar("Result")
Steps = Coroutine[Any, Any, Result]


class WaitCancelled(BaseException):
    """Raised inside a coroutine whose result is no longer wanted."""


class Resumable(Protocol):
    def resume(self) -> None:
        """Repeat what an interrupt of the driving thread has left undone."""
        ...


class Wait:
    """One suspension of a coroutine: `await wait` returns when `wake` is called."""

    _wake: Callback | None = None

    def begin(self, loop: EventLoop, wake: Callback) -> None:
        """Call `wake` once, now or later, when the coroutine can go on."""
        raise NotImplementedError

    def abandon(self) -> None:
        self._wake = None

    def resume(self) -> None:
        """Repeat what an interrupt of the driving thread has left undone."""

    def __await__(self) -> Generator["Wait", None, Any]:
        yield self


class Task(Generic[Result]):
    """One coroutine on one event loop."""

    def __init__(self, steps: Steps[Result]) -> None:
        self.done = False
        self.cancelled = False  # `cancel` was called before the coroutine finished
        self._steps = steps
        self._loop: EventLoop | None = None
        self._wait: Wait | None = None
        self._on_done: Callback | None = None
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._pending_error: BaseException | None = None  # raised in the coroutine's next wait

    @property
    def started(self) -> bool:
        return self._loop is not None

    @property
    def failed(self) -> bool:
        return self._error is not None and not isinstance(self._error, WaitCancelled)

    def start(self, loop: EventLoop, on_done: Callback) -> None:
        if not self.done:
            self._loop, self._on_done = loop, on_done
            self._advance(None)

    def cancel(self) -> None:
        """Raise WaitCancelled inside the coroutine. Only the first call counts."""
        if self.done or self.cancelled:
            return
        self.cancelled = True
        if not self.started:
            self._steps.close()
            self._finish(error=WaitCancelled())
        elif self._wait is not None:
            self._advance(WaitCancelled())
        else:  # the coroutine runs at this moment
            self._pending_error = WaitCancelled()

    def resume(self) -> None:
        if self._wait is not None:
            self._wait.resume()

    def result(self) -> Result:
        """Return what the coroutine returned. Raises what the coroutine raised."""
        assert self.done
        if self._error is not None:
            raise self._error
        return cast("Result", self._result)

    def _wake(self, wait: Wait) -> None:
        if self._wait is wait:  # a wait that was abandoned may still call back
            self._advance(None)

    def _advance(self, error: BaseException | None) -> None:
        """Run the coroutine until its next wait."""
        assert self._loop is not None
        previous, self._wait = self._wait, None
        try:
            if error is None:
                wait = cast("Wait", self._steps.send(None))
            else:
                if previous is not None:
                    previous.abandon()
                wait = cast("Wait", self._steps.throw(error))
            self._wait = wait
            pending, self._pending_error = self._pending_error, None
            if pending is None:
                wait.begin(self._loop, partial(self._wake, wait))
            else:
                self._advance(pending)
        except StopIteration as end:
            self._finish(result=end.value)
        except BaseException as raised:
            if self.done:  # what waits for this task has failed
                raise
            if getattr(self._steps, "cr_frame", None) is None:
                self._finish(error=raised)
            else:  # an interrupt hit this function, and the coroutine is still suspended
                self._advance(raised)

    def _finish(self, *, result: Result | None = None, error: BaseException | None = None) -> None:
        self.done = True
        self._result, self._error = result, error
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done()


class _Delay(Wait):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def begin(self, loop: EventLoop, wake: Callback) -> None:
        self._timer = loop.call_later(self._seconds, wake)

    def abandon(self) -> None:
        self._timer.cancel()


async def after(seconds: float | None) -> None:
    """Wait this many seconds; None: until the task is cancelled."""
    await (Answer[None]() if seconds is None else _Delay(seconds))


class Answer(Wait, Generic[Result]):
    """The answer of a callback interface: `deliver` is the callback, `await answer` the result."""

    def __init__(self) -> None:
        self.operation: Resumable | None = None  # resumed after an interrupt
        self._value: tuple[Result] | None = None

    def deliver(self, value: Result) -> None:
        self._value = (value,)
        if self._wake is not None:
            self._wake()

    def begin(self, loop: EventLoop, wake: Callback) -> None:
        del loop
        self._wake = wake

    def resume(self) -> None:
        if self.operation is not None:
            self.operation.resume()

    def __await__(self) -> Generator[Wait, None, Result]:
        if self._value is None:
            yield self
        assert self._value is not None
        return self._value[0]


class TaskGroup(Wait):
    """Coroutines that run at the same time.

    Leaving the `async with` block cancels the tasks that are not done, and waits until all are.
    """

    def __init__(self, *steps: Steps[Any]) -> None:
        self.tasks = [Task(each) for each in steps]
        self._enough: Callable[[], bool] = self._all_done

    async def first(self) -> Task[Any]:
        """Wait for the first task that is done. Later tasks do not start after that."""
        self._enough = self._any_done
        await self
        return next(task for task in self.tasks if task.done)

    async def join(self, task: Task[Result]) -> Result:
        """Wait for the result of one task."""
        self._enough = lambda: task.done
        await self
        return task.result()

    async def all(self) -> list[Any]:
        """Wait for the results of all. Raises the first error without waiting for the others."""
        self._enough = self._all_done_or_failed
        await self
        failed = [task for task in self.tasks if task.failed]
        return [task.result() for task in failed or self.tasks]

    async def __aenter__(self) -> "TaskGroup":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if kind is GeneratorExit:
            return  # the coroutine is being destroyed, and must not wait again
        self._enough = self._all_done
        for task in self.tasks:
            task.cancel()
        while not self._all_done():
            try:
                await self
            except GeneratorExit:
                raise
            except BaseException as raised:  # noqa: BLE001 - raised again after the cleanup
                error = error or raised
        if kind is None and error is not None:
            raise error
        for task in self.tasks:
            if error is None and task.failed:
                task.result()

    # The group is also the wait of the coroutine that joins it.

    def begin(self, loop: EventLoop, wake: Callback) -> None:
        for task in self.tasks:
            if not task.started and not self._enough():
                task.start(loop, self._on_task_done)
        self._wake = wake
        self._on_task_done()

    def resume(self) -> None:
        for task in self.tasks:
            task.resume()

    def _on_task_done(self) -> None:
        if self._wake is not None and self._enough():
            wake, self._wake = self._wake, None
            wake()

    def _any_done(self) -> bool:
        return any(task.done for task in self.tasks)

    def _all_done(self) -> bool:
        return all(task.done for task in self.tasks)

    def _all_done_or_failed(self) -> bool:
        return self._all_done() or any(task.failed for task in self.tasks)


async def first_of(*steps: Steps[Result]) -> Result:
    """Return the result of the coroutine that finishes first, and cancel the others."""
    async with TaskGroup(*steps) as group:
        return cast("Result", (await group.first()).result())


async def all_of(*steps: Steps[Result]) -> list[Result]:
    """Return the results of all. The first error cancels the others."""
    async with TaskGroup(*steps) as group:
        return await group.all()


class Sequence(Generic[Result]):
    """A coroutine as an operation of the engine."""

    name = ""

    def __init__(
        self,
        steps: Steps[Result],
        loop: EventLoop,
        answer: Callable[[Result], None],
        *,
        cancelled: Result,
    ) -> None:
        """`cancelled` is the answer of a sequence that was cancelled."""
        self._task = Task(steps)
        self._loop = loop
        self._answer = answer
        self._cancelled_answer = cancelled

    def start(self) -> None:
        self._task.start(self._loop, self._on_done)

    def cancel(self, number: int = signals.SIGTERM) -> None:
        """Stop waiting. The run that the sequence waits for is not affected."""
        del number
        if self._task.started:
            self._task.cancel()
        elif not self._task.done:
            self._task.cancel()
            self._on_done()

    def signal(self, number: int) -> None:
        """Ignore a signal to the caller: the signal is not meant for the run."""

    def resume(self) -> None:
        self._task.resume()

    def _on_done(self) -> None:
        try:
            answer = self._task.result()
        except WaitCancelled:
            answer = self._cancelled_answer
        except BaseException:
            self._answer(self._cancelled_answer)
            raise
        self._answer(answer)
