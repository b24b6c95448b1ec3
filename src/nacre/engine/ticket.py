"""A ticket: one started operation, whose answer a thread waits for or an asyncio task awaits.

Waiting drives the event loop of the thread that started the operation. Ctrl-C while a thread waits,
and the cancellation of a task that awaits, end the operation first.
"""

import signal
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from nacre.engine.supervisor import Operation, Supervisor
from nacre.model.cancel import CancelToken

if TYPE_CHECKING:
    from asyncio import Future

Answer = TypeVar("Answer", covariant=True)

# After more interrupts than this, waiting ends at once, although processes may be left.
_MAX_INTERRUPTS: Final = 8


class Ticket(Generic[Answer]):
    """One answer to come. Waited for where it was begun; cancelled from anywhere."""

    # Class-level defaults: see `engine.run.Run`.
    _gave_up = False
    answered = False  # the answer may be None

    def __init__(self, supervisor: Supervisor | None = None) -> None:
        self.answer: object = None  # an Answer
        self._supervisor = supervisor
        self._operation: Operation | None = None
        self._on_answer: Callable[[], object] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def wait(self) -> Answer:
        """Drive the engine until the answer is there.

        An exception on the way (a KeyboardInterrupt, say) stops the command first, and is raised
        again when its tree is gone; another one on the way to that kills the tree.
        """
        interrupts: list[BaseException] = []
        supervisor = None if self.answered else self._own_supervisor()
        while not self.answered and supervisor is not None:
            try:
                supervisor.drive()
            except BaseException as error:
                interrupts.append(error)
                if len(interrupts) > _MAX_INTERRUPTS:
                    self._gave_up = True
                    raise
                self._cancel_here(signal.SIGTERM)
        if interrupts:
            raise interrupts[0]
        return self._get_answer()

    def _get_answer(self) -> Answer:
        assert self.answered
        return cast("Answer", self.answer)

    def abandon(self) -> None:
        """After an interrupt of the waiting thread: end the operation, and drive until it has."""
        self._cancel_here(signal.SIGTERM)
        alive = self._supervisor is not None and not self._supervisor.closed
        if self._operation is not None and alive and not self._gave_up:
            self.wait()

    def __await__(self) -> Generator[object, None, Answer]:
        return self._wait_in_asyncio().__await__()

    async def _wait_in_asyncio(self) -> Answer:
        import asyncio

        host, thread = asyncio.get_running_loop(), threading.get_ident()
        interrupted: asyncio.CancelledError | None = None
        supervisor = None if self.answered else self._own_supervisor()
        while not self.answered and supervisor is not None:
            answered: asyncio.Future[None] = host.create_future()
            self._on_answer = partial(_set_future, answered, thread)
            if not supervisor.attach(host):
                break  # closing the engine has driven the operation to its answer
            try:
                await answered
            except asyncio.CancelledError as error:
                interrupted = error
                self._cancel_here(signal.SIGTERM)
        if interrupted is not None:
            raise interrupted
        return self._get_answer()

    def then(self, call: Callable[[Answer], object]) -> None:
        """For a thread that calls `Engine.step` itself: `call` gets the answer in one of these
        steps, or now if it is there."""
        if self.answered:
            call(self._get_answer())
        else:
            self._on_answer = lambda: call(self._get_answer())

    def cancel(self, number: int = signal.SIGTERM) -> None:
        """From any thread: stop the command, beginning with this signal; again: kill it."""
        run, supervisor = self._operation, self._supervisor
        if run is not None and supervisor is not None:
            supervisor.post(lambda: run.cancel(number))

    def _own_supervisor(self) -> Supervisor:
        if self._supervisor is None or self._supervisor.thread != threading.get_ident():
            raise RuntimeError("a ticket is waited for by the thread that began it")
        if self._supervisor.closed:
            raise RuntimeError("this was begun before a fork, and is the parent's to wait for")
        return self._supervisor

    def _cancel_here(self, number: int) -> None:
        if self._operation is not None and not self.answered:
            self._operation.cancel(number)

    # For the engine.

    def start(self, run: Operation, cancel: CancelToken | None) -> None:
        assert self._supervisor is not None
        self._operation = run
        if cancel is not None:
            self._unsubscribe = cancel.subscribe(self.cancel)
        called_off = cancel is not None and cancel.cancelled
        self._supervisor.start(run, cancelled=called_off)

    def settle(self, answer: object) -> None:
        """The answer is there. Nothing of the run is held on to."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        run, supervisor, tell = self._operation, self._supervisor, self._on_answer
        self.answer, self.answered = answer, True
        if run is not None and supervisor is not None:
            supervisor.on_end(run)
        self._operation = self._supervisor = self._on_answer = None
        if tell is not None:
            tell()


def _set_future(future: "Future[None]", thread: int) -> None:
    if thread != threading.get_ident():
        future.get_loop().call_soon_threadsafe(_set_future, future, thread)
    elif not future.done():
        future.set_result(None)
