"""The engine: plans in, tickets out.

`start` starts a plan on the supervisor of the calling thread; its `Ticket` is waited for by that
thread, or awaited in the event loop that runs on it; a thread that serves many makes steps of its
own, and gets the answer by a callback (`then`). Cancelling and closing may come from any thread.
While nothing runs, an engine holds no descriptor; one that will be closed may keep a loop for the
next command, which takes five.
"""

import itertools
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet, ref

if TYPE_CHECKING:
    from nacre.store.run_record import RunRecord

from nacre.engine import leftover_pipes
from nacre.engine.listener_thread import EventThread
from nacre.engine.loop_context import LazySessions, LoopContext, OnLeftover
from nacre.engine.queue import RunQueue
from nacre.engine.run import Run
from nacre.engine.supervisor import Operation, Supervisor
from nacre.engine.ticket import Ticket
from nacre.model.cancel import CancelToken
from nacre.model.events import Listener, Listening
from nacre.model.outcome import Outcome
from nacre.model.plan import Plan
from nacre.model.refusals import Closed, NoDescriptors, Refused
from nacre.model.requests import Done, Signal
from nacre.process.spawner import descriptor_limit

A = TypeVar("A")
MakeOperation = Callable[
    [LoopContext, Callable[[A], None]], Operation
]  # on this loop, to be answered there

_CLOSE_INTERVAL: Final = 0.02


class Engine:
    """Runs plans for any number of threads and event loops.

    `own_process`: this process is nacre's own, and the subreaper; see `process.own_process`.
    `keep_loop`: a loop is kept for the next command, until the engine is closed or forgotten.
    `prewarm`: shells of sessions are started before somebody wants them.
    `wake_on_signals`: signals end the wait of the main thread; see `process.own_process`.
    `on_leftover`: what becomes of the pipes of a command that has left something running.
    """

    def __init__(
        self,
        *,
        own_process: bool = False,
        keep_loop: bool = False,
        prewarm: bool = False,
        wake_on_signals: bool = False,
        on_leftover: OnLeftover = leftover_pipes.park,
    ) -> None:
        self._idle_supervisor: Supervisor | None = None
        self._own_process = own_process
        self._keep_loop = keep_loop
        self._wake_on_signals = wake_on_signals
        self.sessions = LazySessions(run_to_end, prewarm=prewarm)
        self._on_leftover = on_leftover
        self._queue = RunQueue()
        self._names = itertools.count(1)
        self._supervisors: dict[int, Supervisor] = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        _engines.add(self)

    def start(
        self,
        plan: Plan,
        *,
        listen: Listener | Listening | None = None,
        cancel: CancelToken | None = None,
        record: "RunRecord | None" = None,
    ) -> Ticket[Outcome]:
        """Start a plan, or put it in line. Raises Refused when nothing can be started at all.

        `record` says what the run is called, and takes down what becomes of it."""
        if listen is not None and not isinstance(listen, Listening):
            listen = Listening(listener=listen)
        name = f"u{next(self._names)}" if record is None else ""  # u: nobody writes it down
        return self.start_operation(
            lambda context, answer: Run(
                name, plan, context, listening=listen, record=record, on_outcome=answer
            ),
            cancel,
        )

    def start_operation(
        self, make: MakeOperation[A], cancel: CancelToken | None = None
    ) -> Ticket[A]:
        """Have something waited for that is made on the event loop of the calling thread."""
        supervisor = self._supervisor()
        ticket: Ticket[A] | None = None
        try:
            ticket = Ticket(supervisor)
            ticket.start(make(supervisor.context, ticket.settle), cancel)
        except BaseException:
            if ticket is not None:
                ticket.abandon()
            supervisor.rest_if_idle()
            raise
        return ticket

    def watch_fd(self, fd: int, ready: Callable[[], None]) -> None:
        """Have `ready` called in a step of this thread whenever `fd` can be read; it may begin
        nothing itself. For an engine that keeps its loop. Raises OSError."""
        self._supervisor().context.loop.watch(fd, ready)

    def unwatch_fd(self, fd: int) -> None:
        self._supervisor().context.loop.unwatch(fd)

    def step(self, timeout: float | None = None) -> None:
        """Serve all that this thread has begun or watches, once, waiting at most so long."""
        self._supervisor().drive(timeout)

    def wake(self) -> None:
        """From any thread or signal handler: end the step that waits."""
        with self._lock:
            for supervisor in (*self._supervisors.values(), self._idle_supervisor):
                if supervisor is not None:
                    supervisor.post(_do_nothing)

    def signal(self, request: Signal) -> Done:
        """Send a signal to everything that a live run has started, from any thread."""
        with self._lock:
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            for run in list(supervisor.operations):
                if run.name and run.name == request.run:
                    return Done(found=supervisor.post(partial(run.signal, request.signal)))
        return Done(found=False)

    def close(self) -> None:
        """Stop whatever is still being waited for, and wait until it is gone.

        In a listener there is nothing to wait for, since its own command waits for it.
        """
        with self._lock:
            self._closed = True
            self._close_idle()
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.closing = True
            supervisor.post(supervisor.cancel_all)
        if isinstance(threading.current_thread(), EventThread):
            return
        for supervisor in supervisors:
            while not supervisor.closed:
                if supervisor.driven_here:
                    break  # we are a signal handler of whoever drives, and does it after us
                # Whoever began these may have gone without waiting for them.
                if supervisor.driven_elsewhere:
                    self._wait_for_change()
                else:
                    supervisor.drive(_CLOSE_INTERVAL)
        self.sessions.close()

    def _wait_for_change(self) -> None:
        with self._changed:
            self._changed.wait(_CLOSE_INTERVAL)

    def _supervisor(self) -> Supervisor:
        with self._lock:
            if self._closed:
                raise Refused(Closed())
            ident = threading.get_ident()
            supervisor = self._supervisors.get(ident)
            if supervisor is None:
                supervisor = self._idle_supervisor
                if supervisor is None or not supervisor.context.intact():
                    supervisor = Supervisor(self._new_context(), ref(self))
                supervisor.thread = ident
                # In this order: a signal handler that wants to wake us must find one or the other.
                self._supervisors[ident] = supervisor
                self._idle_supervisor = None
            return supervisor

    def _new_context(self) -> LoopContext:
        try:
            context = LoopContext(
                self._queue,
                own_process=self._own_process,
                on_leftover=self._on_leftover,
                sessions=self.sessions,
            )
        except OSError as error:
            raise Refused(NoDescriptors(limit=descriptor_limit())) from error
        if self._wake_on_signals:
            from nacre.process.own_process import wake_on_signals  # loads ctypes

            wake_on_signals(context.loop)
        return context

    def on_idle(self, supervisor: Supervisor) -> None:
        """A supervisor has no more runs. One may rest, for whoever comes next."""
        with self._lock:
            if supervisor is self._idle_supervisor:
                return
            rests = self._keep_loop and not self._closed and self._idle_supervisor is None
            if rests:
                self._idle_supervisor = supervisor
            if self._supervisors.get(supervisor.thread) is supervisor:
                del self._supervisors[supervisor.thread]
            if not rests:
                supervisor.close()
            if self._closed:
                self._changed.notify_all()

    def _close_idle(self) -> None:
        supervisor, self._idle_supervisor = self._idle_supervisor, None
        if supervisor is not None and supervisor.context.intact():
            supervisor.close_idle()

    def __del__(self) -> None:
        self._close_idle()
        self.sessions.close()

    def after_fork(self) -> None:
        """We are a fork of our host: the runs are the parent's, and so are their loops."""
        self._lock = threading.RLock()  # somebody may have held the old one, and is not here
        self._changed = threading.Condition(self._lock)
        if self._idle_supervisor is not None:
            self._idle_supervisor.context.after_fork()
            self._idle_supervisor.close()
            self._idle_supervisor = None
        for supervisor in self._supervisors.values():
            supervisor.context.after_fork()
            supervisor.closed = True
        self._supervisors = {}
        self._queue = RunQueue()
        self.sessions.after_fork()


def run_to_end(plan: Plan, cancel: CancelToken) -> None:
    """Something of our own, to its end; what counts is what it does."""
    engine = Engine()
    try:
        engine.start(plan, cancel=cancel).wait()
    except Refused:
        return
    finally:
        engine.close()


def _do_nothing() -> None:
    """To be woken by."""


_engines: WeakSet[Engine] = WeakSet()


def _after_fork() -> None:
    leftover_pipes.after_fork()
    for engine in list(_engines):
        engine.after_fork()


os.register_at_fork(after_in_child=_after_fork)
