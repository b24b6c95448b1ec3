"""A ticket: the handle for the future response of one started operation.

To wait for the response of an operation, a thread calls `Ticket.wait`, or an asyncio task awaits
the ticket. A thread or asyncio task that waits for the response of an operation drives the event
loop on which the operation runs. Ctrl-C in a thread that waits for the response of an operation
ends the operation before KeyboardInterrupt is raised. Cancelling an asyncio task that awaits a
ticket ends the operation before CancelledError is raised.
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
Result = TypeVar("Result")

# Number of interrupts (Ctrl-C) after which `Ticket.wait` still waits for the command; one more
# makes it raise at once, although processes may still be running.
_MAX_INTERRUPTS: Final = 8


class Ticket(Generic[Answer]):
    """Handle for the future response of one operation.

    Only the thread that started an operation may wait for its response; any thread may cancel the
    operation.
    """

    # The docstring of `engine.run.Run` explains why the attributes of `Ticket` have class-level
    # defaults.
    _gave_up = False
    answered = False  # whether the operation has responded; its response may be None

    def __init__(self, supervisor: Supervisor | None = None) -> None:
        self.answer: object = None  # response of the ticket's operation, of type Answer
        self._supervisor = supervisor
        self._operation: Operation | None = None
        self._on_answer: Callable[[], object] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def wait(self) -> Answer:
        """Drive the event loop until the operation has responded, and return its response.

        An exception during the wait, such as KeyboardInterrupt, stops the command; `wait` raises
        the exception again when the command's process tree has ended. If a second exception, such
        as another KeyboardInterrupt, is raised while `wait` stops the command, `wait` kills the
        command's process tree.
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
        """Cancel the operation after an interrupt (Ctrl-C), and drive the event loop until the
        operation has ended."""
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
                break  # the ticket's operation has already ended during `Engine.close`
            try:
                await answered
            except asyncio.CancelledError as error:
                interrupted = error
                self._cancel_here(signal.SIGTERM)
        if interrupted is not None:
            raise interrupted
        return self._get_answer()

    def then(self, call: Callable[[Answer], object]) -> None:
        """Pass the operation's response to the callback `call`: at once if the response has
        arrived, else in a later `Engine.step`. `Ticket.then` is for threads that call `Engine.step`
        themselves instead of `Ticket.wait`."""
        if self.answered:
            call(self._get_answer())
        else:
            self._on_answer = lambda: call(self._get_answer())

    def cancel(self, number: int = signal.SIGTERM) -> None:
        """Stop the command: the first call of `cancel` sends signal `number`, the second call kills
        the process tree. Any thread may call `cancel`."""
        run, supervisor = self._operation, self._supervisor
        if run is not None and supervisor is not None:
            supervisor.post(lambda: run.cancel(number))

    def _own_supervisor(self) -> Supervisor:
        if self._supervisor is None or self._supervisor.thread != threading.get_ident():
            raise RuntimeError(
                "a ticket must be waited for in the thread that started the operation"
            )
        if self._supervisor.closed:
            raise RuntimeError(
                "the operation was started before fork(2); only the parent process can wait for it"
            )
        return self._supervisor

    def _cancel_here(self, number: int) -> None:
        if self._operation is not None and not self.answered:
            self._operation.cancel(number)

    # Methods of a ticket that only the engine and the ticket's operation call.

    def start(self, run: Operation, cancel: CancelToken | None) -> None:
        assert self._supervisor is not None
        self._operation = run
        if cancel is not None:
            self._unsubscribe = cancel.subscribe(self.cancel)
        called_off = cancel is not None and cancel.cancelled
        self._supervisor.start(run, cancelled=called_off)

    def settle(self, answer: object) -> None:
        """Store the response in the ticket, and drop all references to the operation."""
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


async def run_in_thread(function: Callable[[], Result]) -> Result:
    """Call a function that takes long, without blocking the running event loop of asyncio."""
    import asyncio

    return await asyncio.to_thread(function)
