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

`SequenceOperation` makes a coroutine an operation that the engine starts, cancels and waits for.
The modules `runs/access` and `runs/conditions` contain the waits for events of a run, for example
for its end.
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
    """Driver of one coroutine on one event loop.

    An interrupt (KeyboardInterrupt) can be raised between any two bytecodes. An interrupt inside
    `_advance` is raised in the coroutine, and `resume` repeats a call that an interrupt prevented.
    """

    def __init__(self, steps: Steps[Result]) -> None:
        self.started = self.done = self._cancelled = False
        self._unused = True  # the coroutine has not run yet
        self._cancel_pending = False  # WaitCancelled is still to be raised in the coroutine
        self._steps = steps
        # Callback for the end of the coroutine. A task that has not started has none, because a
        # reference cycle would delay `__del__`.
        self._on_done: Callback | None = None
        self._wait: Wait | None = None
        self._result: Result | None = None
        self._error: BaseException | None = None

    def __del__(self) -> None:
        if self._unused:
            self._steps.close()  # otherwise Python warns that the coroutine was never awaited

    @property
    def failed(self) -> bool:
        return self._error is not None and not isinstance(self._error, WaitCancelled)

    def start(self, loop: EventLoop, on_done: Callback) -> None:
        if not self.done:
            self._loop, self._on_done = loop, on_done
            self.started = True
            self._advance()

    def cancel(self) -> None:
        """Raise WaitCancelled inside the task's coroutine; a second call of `cancel` has no
        effect."""
        if self.done:
            return
        if not self.started:
            self._steps.close()
            self._finish(error=WaitCancelled())
            return
        if not self._cancelled:
            self._cancelled = self._cancel_pending = True
        if self._cancel_pending and not self._running:  # a running coroutine: in its next wait
            self._advance()

    def resume(self) -> None:
        if self._wait is not None and not self._cancel_pending:
            self._wait.resume()
        elif self.started and not self.done and not self._running:
            self._advance()

    def result(self) -> Result:
        """Return the return value of the coroutine, or raise the exception that the coroutine
        raised."""
        if self._error is not None:
            raise self._error
        return cast("Result", self._result)

    @property
    def _running(self) -> bool:
        return bool(getattr(self._steps, "cr_running", False))

    @property
    def _ended(self) -> bool:
        return getattr(self._steps, "cr_frame", None) is None

    def _wake(self, wait: Wait) -> None:
        if self._wait is wait:  # an abandoned wait may still call `_wake`
            self._advance()

    def _advance(self, error: BaseException | None = None) -> None:
        """Run the coroutine until its next wait; raise `error` inside it first, if one is given."""
        try:
            if self._ended:  # an interrupt hit this task between the coroutine's end and `_finish`
                raise WaitCancelled
            if self._cancel_pending and error is None:
                self._cancel_pending, error = False, WaitCancelled()
            previous, self._wait = self._wait, None
            if error is not None and previous is not None:
                previous.abandon()
            if error is not None and self._unused:
                self._steps.close()
                raise error
            self._unused = False
            wait = self._steps.send(None) if error is None else self._steps.throw(error)
            self._wait = wait
            if self._cancel_pending:
                self._advance()
            else:
                wait.begin(self._loop, partial(self._wake, wait))
        except StopIteration as end:
            self._finish(result=end.value)
        except BaseException as raised:
            if self.done:  # the error comes from a callback that ran after the coroutine's end
                raise
            if self._ended:
                self._finish(error=raised)
            else:  # an interrupt hit this function, and the coroutine is still suspended
                self._advance(raised)

    def _finish(self, *, result: Result | None = None, error: BaseException | None = None) -> None:
        self._result, self._error = result, error
        self.done = True
        if self._on_done is not None:
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
        if self._value is not None and self._wake is not None:
            self._wake()

    def __await__(self) -> Generator[Wait, None, Result]:
        while self._value is None:
            yield self
        return self._value[0]


class TaskGroup(Wait):
    """Group of coroutines that run at the same time, each in its own `Task`.

    Leaving the `async with` block of a group cancels its unfinished tasks and waits until all tasks
    are done.
    """

    def __init__(self, *steps: Steps[Any]) -> None:
        self.tasks = [Task(each) for each in steps]
        self._enough: Callable[[], bool] = lambda: False  # set by each wait for the group
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
        while not self._all_done():
            try:
                for task in self.tasks:
                    task.cancel()
                await self._until(self._all_done)
            except GeneratorExit:
                raise
            except BaseException as raised:  # noqa: BLE001 - raised again after the cleanup
                error = raised if error is None or isinstance(error, WaitCancelled) else error
        if error is None or isinstance(error, WaitCancelled):
            for task in self.tasks:
                if task.failed:
                    task.result()
        if kind is None and error is not None:
            raise error

    async def _until(self, enough: Callable[[], bool]) -> None:
        self._enough = enough
        while not enough():
            await self

    def begin(self, loop: EventLoop, wake: Callback) -> None:
        for task in self.tasks:
            if not task.started and not self._enough():
                task.start(loop, self._on_task_done)
        self._wake = wake
        self._on_task_done()

    def abandon(self) -> None:
        self._wake = None

    def resume(self) -> None:
        for task in self.tasks:
            task.resume()
        self._on_task_done()

    def _on_task_done(self) -> None:
        if self._wake is not None and self._enough():
            self._wake()

    def _all_done(self) -> bool:
        return all(task.done for task in self.tasks)


def first_of(*steps: Steps[Result]) -> Steps[Result]:
    """Return the result of the coroutine that finishes first, and cancel the other coroutines."""
    return _first_of(TaskGroup(*steps))


async def _first_of(group: TaskGroup) -> Any:
    async with group:
        return (await group.first()).result()


def all_of(*steps: Steps[Result]) -> Steps[list[Result]]:
    """Return the results of all coroutines; the first error cancels the other coroutines."""
    return _all_of(TaskGroup(*steps))


async def _all_of(group: TaskGroup) -> list[Any]:
    async with group:
        return await group.all()


class SequenceOperation(Generic[Result]):
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
        self._task = Task(steps)
        self._loop = loop
        self._answer = answer
        self._cancelled_answer = cancelled
        self._answered = False

    def start(self) -> None:
        self._task.start(self._loop, self._on_done)

    def cancel(self, number: int = signals.SIGTERM) -> None:
        """Cancel the coroutine; a run for which the coroutine waits is not affected."""
        del number
        self._task.cancel()
        if self._task.done:
            self._on_done()

    def signal(self, number: int) -> None:
        """Do nothing: only runs get signals, and a `SequenceOperation` is not a run."""

    def resume(self) -> None:
        if self._task.done:
            self._on_done()
        else:
            self._task.resume()

    def _on_done(self) -> None:
        if self._answered:
            return
        try:
            answer = self._task.result()
        except WaitCancelled:
            answer = self._cancelled_answer
        except BaseException:
            self._answered = True
            self._answer(self._cancelled_answer)
            raise
        self._answered = True
        self._answer(answer)
