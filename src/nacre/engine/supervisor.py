"""Supervisor: drives the operations (runs and other waits) of one event loop, many at once.

A thread that waits for an operation calls `Supervisor.drive`; an asyncio loop calls `drive` through
`asyncio_driver`. Each waiting thread, with or without an asyncio loop, has one supervisor, which
the engine creates for the thread's first command. After the last command of a thread, the engine
keeps the thread's supervisor idle, or closes it.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from nacre.engine import leftover_pipes
from nacre.engine.asyncio_driver import AsyncioDriver
from nacre.engine.loop_context import LoopContext
from nacre.eventloop import Callback
from nacre.model.refusals import Closed, Refused

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from nacre.engine.engine import Engine


class Operation(Protocol):
    """Anything that the engine waits for: a run, a request to the warden (nacre's daemon), a wait
    on another process."""

    name: str

    def start(self) -> None: ...

    def cancel(self, number: int = ...) -> None:
        """Stop the operation: the first call of `cancel` sends signal `number`, the second call
        kills the operation."""
        ...

    def signal(self, number: int) -> None: ...

    def resume(self) -> None:
        """Continue the work of an operation that an interrupt (Ctrl-C in a host) cut short."""
        ...


class Supervisor:
    def __init__(self, context: LoopContext, owner: "Callable[[], Engine | None]") -> None:
        """`owner` returns the engine that owns the supervisor, or None once the engine is freed.
        The supervisor calls the engine's `on_idle` after the last operation has ended."""
        # Whether every operation that is started from now on is cancelled at once.
        self.closing = False
        self.closed = False
        self._driver = 0  # id of the thread that is inside `drive`; 0: no thread
        # Whether an exception cut a step of the event loop short, so that operations may have work
        # left.
        self._interrupted = False
        self._asyncio: AsyncioDriver | None = None
        self.context = context
        self.thread = threading.get_ident()
        self.operations: set[Operation] = set()
        self._owner = owner
        self._driving = threading.Lock()
        self._leftovers: list[leftover_pipes.LeftoverPipes] = []

    def post(self, call: Callback) -> bool:
        """Queue the callback `call` for the thread that drives the event loop; return False when
        the supervisor is closed. Any thread may call `post`."""
        return not self.closed and self.context.loop.post(call)

    def start(self, run: Operation, *, cancelled: bool) -> None:
        """Start an operation, or cancel it at once if `cancelled` is True. Raises Refused when
        another thread has closed the supervisor."""
        self._check_not_nested()
        with self._driving:
            if self.closed:
                raise Refused(Closed())
            self._unpark_leftovers()
            self.operations.add(run)
            if cancelled or self.closing:
                run.cancel()
            else:
                run.start()

    def on_end(self, run: Operation) -> None:
        """Remove from the supervisor an operation that has delivered its response."""
        if run in self.operations:  # a second call of `on_end` has no effect
            self.operations.discard(run)
            self.rest_if_idle()

    def rest_if_idle(self) -> None:
        """Make the supervisor idle and return it to the engine, if no operation and no event is
        pending. An idle supervisor leaves the output pipes of leftover processes (which outlived
        their runs) to other event loops."""
        if self.operations or self.closed or self.context.has_pending_events:
            return
        self._detach()
        if self._leftovers:
            self._park_leftovers()
        self.context.loop.clear_timers()
        owner = self._owner()
        if owner is None:
            self.close()
        else:
            owner.on_idle(self)

    def cancel_all(self) -> None:
        for run in list(self.operations):
            run.cancel()
        self.context.stop_listening()
        self.rest_if_idle()

    def drive(self, timeout: float | None = None) -> None:
        """Run one step of the event loop; wait at most `timeout` seconds for an event."""
        self._check_not_nested()
        with self._driving:
            self._driver = threading.get_ident()
            try:
                if not self.closed:
                    self._step(timeout)
            finally:
                self._driver = 0

    def _step(self, timeout: float | None) -> None:
        # A step of the event loop without a pending operation only serves a watched descriptor or
        # the warden (nacre's daemon), so the supervisor may be idle again after the step.
        lonely = not self.operations
        try:
            if self._interrupted:
                for run in list(self.operations):
                    run.resume()
                self._interrupted = False
                timeout = 0.0
            self.context.loop.step(timeout)
        except BaseException:
            self._interrupted = True
            raise
        if lonely:
            self.rest_if_idle()
        if self._asyncio is not None and not self.closed:
            self._asyncio.set_timer()

    @property
    def driven_here(self) -> bool:
        """Return whether the caller is a signal handler that interrupted this thread inside
        `drive`."""
        return self._driver == threading.get_ident()

    def _check_not_nested(self) -> None:
        if self.driven_here:
            raise RuntimeError(
                "a signal handler cannot run a command while its thread waits for another command;"
                " cancel the other command first, or run this one in a thread"
            )

    @property
    def driven_elsewhere(self) -> bool:
        """Return whether another thread drives this supervisor at this moment."""
        if self.thread == threading.get_ident():
            return False
        return self._driving.locked() or (
            self._asyncio is not None and self._asyncio.host.is_running()
        )

    def close(self) -> None:
        """Close an idle supervisor and its event loop. A thread that does not own the supervisor
        must call `close_idle`, which waits until no thread is inside `drive`."""
        self.closed = True
        self.context.close()

    def close_idle(self) -> None:
        with self._driving:
            self.close()

    def _unpark_leftovers(self) -> None:
        for leftover in leftover_pipes.unpark():
            leftover_pipes.watch(leftover, self.context.loop)
            self._leftovers.append(leftover)

    def _park_leftovers(self) -> None:
        while self._leftovers:
            leftover_pipes.unwatch(self._leftovers[-1], self.context.loop)
            if not self._leftovers[-1].closed:
                leftover_pipes.park(self._leftovers[-1])
            self._leftovers.pop()

    def attach(self, host: "AbstractEventLoop") -> bool:
        """Let the asyncio loop `host` drive the operations from now on; return False when the
        supervisor is closed or has no operations."""
        with self._driving:
            if self.closed or not self.operations:
                return False
            if self._asyncio is None or self._asyncio.host is not host:
                self._detach()
                self._asyncio = AsyncioDriver(host, self.context.loop, partial(self.drive, 0))
                self._asyncio.start()
            self._asyncio.set_timer()
            return True

    def _detach(self) -> None:
        if self._asyncio is not None:
            self._asyncio.close()
            self._asyncio = None
