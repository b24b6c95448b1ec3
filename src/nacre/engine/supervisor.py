"""One loop that serves many commands at once, driven by whoever waits.

A thread that waits calls `drive`; an asyncio loop makes the same steps (`asyncio_driver`). There is
one supervisor per waiting thread (an asyncio loop is one), made for its first command; after its
last it rests, or is closed.
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
    """Something that is waited for: a run of our own, or one that somebody else has."""

    name: str

    def start(self) -> None: ...

    def cancel(self, number: int = ...) -> None:
        """Stop it, beginning with this signal; a second time: kill it."""
        ...

    def signal(self, number: int) -> None: ...

    def resume(self) -> None:
        """Do again what an interrupt has left undone."""
        ...


class Supervisor:
    def __init__(self, context: LoopContext, owner: "Callable[[], Engine | None]") -> None:
        """`owner` gives the engine, whose `on_idle` is called; None when the engine is gone."""
        self.closing = False  # whatever begins here is called off
        self.closed = False
        self._driver = 0  # the thread that drives, at this moment
        self._interrupted = False  # somebody may have more to do
        self._asyncio: AsyncioDriver | None = None
        self.context = context
        self.thread = threading.get_ident()
        self.operations: set[Operation] = set()
        self._owner = owner
        self._driving = threading.Lock()
        self._leftovers: list[leftover_pipes.LeftoverPipes] = []

    def post(self, call: Callback) -> bool:
        """From any thread: have this done by whoever drives. False when nobody will."""
        return not self.closed and self.context.loop.post(call)

    def start(self, run: Operation, *, cancelled: bool) -> None:
        """Raises Refused when we have been closed meanwhile, from another thread."""
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
        """A run has given its answer."""
        if run in self.operations:  # once
            self.operations.discard(run)
            self.rest_if_idle()

    def rest_if_idle(self) -> None:
        """After the last run: leave nothing with us that others could see to."""
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
        """Serve everything here once, waiting for something to do at most so long."""
        self._check_not_nested()
        with self._driving:
            self._driver = threading.get_ident()
            try:
                if not self.closed:
                    self._step(timeout)
            finally:
                self._driver = 0

    def _step(self, timeout: float | None) -> None:
        lonely = not self.operations  # only somebody far away has something to tell us
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
        """Whether we are called by what has interrupted this thread's own driving."""
        return self._driver == threading.get_ident()

    def _check_not_nested(self) -> None:
        if self.driven_here:
            raise RuntimeError(
                "a signal handler cannot run a command while its thread waits for another one;"
                " cancel that one, or run it in a thread"
            )

    @property
    def driven_elsewhere(self) -> bool:
        """Whether somebody else drives us at this moment."""
        if self.thread == threading.get_ident():
            return False
        return self._driving.locked() or (
            self._asyncio is not None and self._asyncio.host.is_running()
        )

    def close(self) -> None:
        """Only at rest. From another thread, with nobody inside: by way of `retire`."""
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
        """Have this asyncio loop drive the operations from now on. False when there are none."""
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
