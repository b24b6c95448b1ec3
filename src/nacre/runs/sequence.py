"""Operations written as sequences of waits: coroutines on nacre's own event loop.

    await control.write(run, b"yes\\n")
    first = await first_of(control.wait_for_end(run), wait_until_met(until), after(2.0))
    return report(run, first)

A `Task` drives one coroutine. The coroutine of a `Task` suspends only in the waits `after`,
`Answer`, `first_of` and `all_of`. Futures of asyncio do not work in a `Task`, because a `Task` runs
on nacre's own event loop, whose thread may have no asyncio loop.

Cancelling a task raises `WaitCancelled` inside its coroutine, which may then await its own cleanup,
for example the end of a process that it has killed. `first_of` and `all_of` return after every task
that they started has finished.

`Sequence` makes a coroutine an operation that the engine starts, cancels and waits for. The modules
`runs/access` and `runs/conditions` contain the waits for events of a run, for example for its end.
"""

import signal as signals
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from nacre.engine.supervisor import Operation
from nacre.eventloop import Callback, EventLoop, Timer

Result = TypeVar("Result")
Steps = Coroutine[Any, Any, Result]


class WaitCancelled(BaseException):
    """Exception raised inside a coroutine whose result is no longer wanted."""


class Wait:
    """One suspension of a coroutine: `await wait` returns when `wake` is called."""

    def begin(self, loop: EventLoop, wake: Callback) -> None:
        """Begin to wait, and call `wake` once, now or later, so that the waiting coroutine
        continues."""
        raise NotImplementedError

    def abandon(self) -> None:
        """End the wait early, for example by cancelling its timer; a later call of `wake` has no
        effect."""

    def resume(self) -> None:
        """Continue the awaited operation after an interrupt (Ctrl-C in a host) has cut it short."""

    def __await__(self) -> Generator["Wait", None, Any]:
        yield self


class Task(Generic[Result]):
    """Driver of one coroutine on one event loop."""

    def __init__(self, steps: Steps[Result], on_done: Callback) -> None:
        self.started = self.done = self._cancelled = False
        self._cancel_pending = False  # the cancel came while the coroutine was running
        self._steps = steps
        self._on_done = on_done
        self._wait: Wait | None = None
        self._result: Result | None = None
        self._error: BaseException | None = None

    @property
    def failed(self) -> bool:
        return self._error is not None and not isinstance(self._error, WaitCancelled)

    def start(self, loop: EventLoop) -> None:
        if not self.done:
            self.started, self._loop = True, loop
            self._advance()

    def cancel(self) -> None:
        """Raise WaitCancelled inside the task's coroutine; a second call of `cancel` has no
        effect."""
        if self.done or self._cancelled:
            return
        self._cancelled = True
        if not self.started:
            self._steps.close()
            self._finish(error=WaitCancelled())
        elif self._wait is None:
            self._cancel_pending = True
        else:
            self._advance(WaitCancelled())

    def resume(self) -> None:
        if self._wait is not None:
            self._wait.resume()

    def result(self) -> Result:
        """Return the return value of the coroutine, or raise the exception that the coroutine
        raised."""
        if self._error is not None:
            raise self._error
        return cast("Result", self._result)

    def _wake(self, wait: Wait) -> None:
        if self._wait is wait:  # an abandoned wait may still call `_wake`
            self._advance()

    def _advance(self, error: BaseException | None = None) -> None:
        """Run the coroutine until its next wait; raise `error` inside it first, if one is given."""
        if error is not None and self._wait is not None:
            self._wait.abandon()
        self._wait = None
        try:
            wait = self._steps.send(None) if error is None else self._steps.throw(error)
            self._wait = wait
            if self._cancel_pending:
                self._cancel_pending = False
                self._advance(WaitCancelled())
            else:
                wait.begin(self._loop, partial(self._wake, wait))
        except StopIteration as end:
            self._finish(result=end.value)
        except BaseException as raised:
            if self.done:
                # An exception after the end of the coroutine comes from a callback.
                raise
            if getattr(self._steps, "cr_frame", None) is None:
                self._finish(error=raised)
            else:
                # An exception that was raised outside of the suspended coroutine, for example an
                # interrupt (Ctrl-C), is raised inside the coroutine.
                self._advance(raised)

    def _finish(self, *, result: Result | None = None, error: BaseException | None = None) -> None:
        self.done, self._result, self._error = True, result, error
        self._on_done()


class _Delay(Wait):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer: Timer | None = None

    def begin(self, loop: EventLoop, wake: Callback) -> None:
        self._timer = loop.call_later(self._seconds, wake)

    def abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


async def after(seconds: float | None) -> None:
    """Wait this many seconds; if `seconds` is None, wait until the task is cancelled."""
    await (Answer[None]() if seconds is None else _Delay(seconds))


class Answer(Wait, Generic[Result]):
    """Awaitable result of an operation: the operation passes its result to `deliver`, and
    `await answer` returns this result."""

    def __init__(self) -> None:
        self.operation: Operation | None = None  # operation to resume after an interrupt
        self._value: tuple[Result] | None = None
        self._wake: Callback | None = None

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
    """Group of coroutines that run at the same time, each in its own `Task`.

    Leaving the `async with` block of a group cancels its unfinished tasks and waits until all tasks
    are done.
    """

    def __init__(self, *steps: Steps[Any]) -> None:
        self.tasks = [Task(each, self._on_task_done) for each in steps]
        self._enough: Callable[[], bool] = self._all_done
        self._wake: Callback | None = None

    async def first(self) -> Task[Any]:
        """Wait for the first task that is done; tasks that have not started by then never start."""
        await self._until(lambda: any(task.done for task in self.tasks))
        return next(task for task in self.tasks if task.done)

    async def join(self, task: Task[Result]) -> Result:
        """Wait for the result of one task."""
        await self._until(lambda: task.done)
        return task.result()

    async def all(self) -> list[Any]:
        """Wait for the results of all tasks, or raise the first error of a task at once."""
        await self._until(lambda: self._all_done() or any(task.failed for task in self.tasks))
        failed = [task for task in self.tasks if task.failed]
        return [task.result() for task in failed or self.tasks]

    async def __aenter__(self) -> "TaskGroup":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if kind is GeneratorExit:
            return  # a coroutine that is being destroyed must not wait again
        for task in self.tasks:
            task.cancel()
        while not self._all_done():
            try:
                await self._until(self._all_done)
            except GeneratorExit:
                raise
            except BaseException as raised:  # noqa: BLE001 - raised again after the cleanup
                error = error or raised
        if kind is None and error is not None:
            raise error
        for task in self.tasks:
            if error is None and task.failed:
                task.result()

    async def _until(self, enough: Callable[[], bool]) -> None:
        self._enough = enough
        await self

    def begin(self, loop: EventLoop, wake: Callback) -> None:
        for task in self.tasks:
            if not task.started and not self._enough():
                task.start(loop)
        self._wake = wake
        self._on_task_done()

    def abandon(self) -> None:
        self._wake = None

    def resume(self) -> None:
        for task in self.tasks:
            task.resume()

    def _on_task_done(self) -> None:
        if self._wake is not None and self._enough():
            wake, self._wake = self._wake, None
            wake()

    def _all_done(self) -> bool:
        return all(task.done for task in self.tasks)


async def first_of(*steps: Steps[Result]) -> Result:
    """Return the result of the coroutine that finishes first, and cancel the other coroutines."""
    async with TaskGroup(*steps) as group:
        return cast("Result", (await group.first()).result())


async def all_of(*steps: Steps[Result]) -> list[Result]:
    """Return the results of all coroutines; the first error cancels the other coroutines."""
    async with TaskGroup(*steps) as group:
        return await group.all()


class Sequence(Generic[Result]):
    """Operation (work that the engine waits for) in the form of one coroutine."""

    name = ""

    def __init__(
        self,
        steps: Steps[Result],
        loop: EventLoop,
        answer: Callable[[Result], None],
        *,
        cancelled: Result,
    ) -> None:
        """`cancelled` is the result that the callback `answer` gets if the coroutine is cancelled
        or raises an exception."""
        self._task = Task(steps, self._on_done)
        self._loop = loop
        self._answer = answer
        self._cancelled_answer = cancelled

    def start(self) -> None:
        self._task.start(self._loop)

    def cancel(self, number: int = signals.SIGTERM) -> None:
        """Cancel the coroutine; a run for which the coroutine waits is not affected."""
        del number
        self._task.cancel()

    def signal(self, number: int) -> None:
        """Do nothing: only runs get signals, and a `Sequence` is not a run."""

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
