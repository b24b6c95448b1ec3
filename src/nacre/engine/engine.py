"""The engine: starts plans (prepared commands) and returns tickets (handles of future outcomes).

`Engine.start` starts a plan on the event loop of the calling thread and returns a `Ticket`. The
thread that started a plan calls `Ticket.wait`, or awaits the ticket in its asyncio loop. A thread
that serves many operations calls `Engine.step` repeatedly and gets each response through a callback
(`Ticket.then`). Any thread may cancel an operation or close the engine. While no command runs, an
engine holds no open descriptor, unless `keep_loop` makes it keep one event loop (five descriptors)
for the next command.
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
# Function that creates an operation; its arguments are a `LoopContext`, which has the event loop,
# and a callback that the operation calls with its response.
MakeOperation = Callable[[LoopContext, Callable[[A], None]], Operation]

_CLOSE_INTERVAL: Final = 0.02


class Engine:
    """Runner of plans (prepared commands) for any number of threads and asyncio loops.

    `own_process`: this process belongs to nacre, not to a host program, and is the subreaper; see
    `process.own_process`.
    `keep_loop`: keep one event loop open for the next command, until the engine is closed or freed.
    `prewarm`: start the shells of sessions in advance, before a command needs them.
    `wake_on_signals`: make each signal end the main thread's wait for events; see
    `process.own_process`.
    `on_leftover`: callback that takes over the output pipes of an ended run if processes that
    outlived the run's shell still hold the pipes open.
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
        """Start a plan (prepared command), or queue it until a slot is free.

        `record` assigns the run's id and stores the run's start and outcome; None means that the
        run is not stored. Raises Refused when the engine is closed, or when no event loop or
        listener thread can be created.
        """
        if listen is not None and not isinstance(listen, Listening):
            listen = Listening(listener=listen)
        # Prefix of a run id: `u` for a run that is not stored.
        name = f"u{next(self._names)}" if record is None else ""
        return self.start_operation(
            lambda context, answer: Run(
                name, plan, context, listening=listen, record=record, on_outcome=answer
            ),
            cancel,
        )

    def start_operation(
        self, make: MakeOperation[A], cancel: CancelToken | None = None
    ) -> Ticket[A]:
        """Create an operation with `make` on the event loop of the calling thread, start the
        operation, and return its ticket (handle)."""
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
        """Watch `fd`: `Engine.step` in the calling thread calls `ready` whenever `fd` is readable.

        The callback `ready` of a watched descriptor must not start an operation. `watch_fd` needs
        an engine that was created with `keep_loop`. Raises OSError.
        """
        self._supervisor().context.loop.watch(fd, ready)

    def unwatch_fd(self, fd: int) -> None:
        self._supervisor().context.loop.unwatch(fd)

    def step(self, timeout: float | None = None) -> None:
        """Run one step of this thread's event loop; wait at most `timeout` seconds for an event."""
        self._supervisor().drive(timeout)

    def wake(self) -> None:
        """End the wait of every thread that is inside `Engine.step`. Any thread or signal handler
        may call `wake`."""
        with self._lock:
            for supervisor in (*self._supervisors.values(), self._idle_supervisor):
                if supervisor is not None:
                    supervisor.post(_do_nothing)

    def signal(self, request: Signal) -> Done:
        """Send a signal to the process tree of a live run; any thread may call `Engine.signal`."""
        with self._lock:
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            for run in list(supervisor.operations):
                if run.name and run.name == request.run:
                    return Done(found=supervisor.post(partial(run.signal, request.signal)))
        return Done(found=False)

    def close(self) -> None:
        """Close the engine: cancel every operation, and wait until all operations have ended.

        When a listener (callback for a run's events) calls `close`, the call returns without
        waiting, because the listener's own run waits for the listener.
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
                    # If `close` is called by a signal handler that interrupted a step of the event
                    # loop, `close` does not wait: the interrupted step ends the operations when it
                    # continues.
                    break
                # The thread that started an operation may have ended without waiting for it, so
                # `close` drives the operation's event loop itself.
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
                # Set `_supervisors` first and clear `_idle_supervisor` second: a signal handler may
                # call `wake` between the two assignments, and must find the supervisor.
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
            # `process.own_process` is imported only when needed, because it loads ctypes.
            from nacre.process.own_process import wake_on_signals

            wake_on_signals(context.loop)
        return context

    def on_idle(self, supervisor: Supervisor) -> None:
        """Take back a supervisor (driver of an event loop) without operations: keep one supervisor
        for the next command, and close any other."""
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
        """Forget all runs and event loops in a forked child: they belong to the parent process."""
        # The forked child gets a new lock: a thread of the parent process may have held the old
        # lock during fork(2), so that the old lock would stay locked in the child.
        self._lock = threading.RLock()
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
    """Run a plan (prepared command) only for its side effects: wait until the command has ended,
    and discard the outcome."""
    engine = Engine()
    try:
        engine.start(plan, cancel=cancel).wait()
    except Refused:
        return
    finally:
        engine.close()


def _do_nothing() -> None:
    """Do nothing; posting this empty callback only ends the event loop's wait."""


_engines: WeakSet[Engine] = WeakSet()


def _after_fork() -> None:
    leftover_pipes.after_fork()
    for engine in list(_engines):
        engine.after_fork()


os.register_at_fork(after_in_child=_after_fork)
