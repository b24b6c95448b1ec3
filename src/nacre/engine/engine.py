"""The engine: plans in, tickets out.

`begin` starts a plan on the supervisor of the calling thread; its `Ticket` is waited for by that
thread, or awaited in the event loop that runs on it; a thread that serves many makes steps of its
own, and is told (`then`). Cancelling and closing may come from
anywhere. While nothing runs, an engine holds no descriptor; one that somebody will close may keep
a loop for the next command, which takes five.
"""

import itertools
import os
import signal
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast
from weakref import WeakSet, ref

if TYPE_CHECKING:
    from asyncio import Future

    from nacre.store.record import Record

from nacre.asks import Done, Signal
from nacre.cancel import CancelToken
from nacre.engine import leftovers
from nacre.engine.ground import Ground, Leave, Rememberer
from nacre.engine.relay import ListenerThread
from nacre.engine.run import Run
from nacre.engine.slots import Slots
from nacre.engine.supervise import Supervised, Supervisor
from nacre.events import Listener, Listening
from nacre.outcome import Outcome
from nacre.plan import Plan
from nacre.process.child import descriptor_limit
from nacre.refusals import Closed, NoDescriptors, Refused

A = TypeVar("A")
Make = Callable[[Ground, Callable[[A], None]], Supervised]  # on this ground, to be answered there

_MOMENT: Final = 0.02
# Whoever interrupts us so often does not care about the tree any more.
_PATIENCE: Final = 8


class Ticket(Generic[A]):
    """One answer to come. Waited for where it was begun; cancelled from anywhere."""

    _given_up = False
    answered = False  # the answer may be None

    def __init__(self, supervisor: Supervisor | None = None) -> None:
        self.outcome: A | None = None
        self._supervisor = supervisor
        self._run: Supervised | None = None
        self._tell: Callable[[], object] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def wait(self) -> A:
        """Drive the engine until the answer is there.

        An exception on the way (a KeyboardInterrupt, say) stops the command first, and is raised
        again when its tree is gone; another one on the way to that kills the tree.
        """
        interrupts: list[BaseException] = []
        supervisor = None if self.answered else self._here()
        while not self.answered and supervisor is not None:
            try:
                supervisor.drive()
            except BaseException as error:
                interrupts.append(error)
                if len(interrupts) > _PATIENCE:
                    self._given_up = True
                    raise
                self._cancel_here(signal.SIGTERM)
        if interrupts:
            raise interrupts[0]
        return self._answer()

    def _answer(self) -> A:
        assert self.answered
        return cast("A", self.outcome)

    def abandon(self) -> None:
        """Whoever should wait has been interrupted: end it, and drive until it has."""
        self._cancel_here(signal.SIGTERM)
        alive = self._supervisor is not None and not self._supervisor.closed
        if self._run is not None and alive and not self._given_up:
            self.wait()

    def __await__(self) -> Generator[object, None, A]:
        return self._awaited().__await__()

    async def _awaited(self) -> A:
        import asyncio

        host, thread = asyncio.get_running_loop(), threading.get_ident()
        interrupted: asyncio.CancelledError | None = None
        supervisor = None if self.answered else self._here()
        while not self.answered and supervisor is not None:
            answered: asyncio.Future[None] = host.create_future()
            self._tell = partial(_answered, answered, thread)
            if not supervisor.attach(host):
                break  # whoever closes the engine has driven us, to the answer
            try:
                await answered
            except asyncio.CancelledError as error:
                interrupted = error
                self._cancel_here(signal.SIGTERM)
        if interrupted is not None:
            raise interrupted
        return self._answer()

    def then(self, call: Callable[[A], object]) -> None:
        """For one who makes the engine's steps himself: called with the answer, in one of them, or
        now."""
        if self.answered:
            call(self._answer())
        else:
            self._tell = lambda: call(self._answer())

    def cancel(self, number: int = signal.SIGTERM) -> None:
        """From any thread: stop the command, beginning with this signal; again: kill it."""
        run, supervisor = self._run, self._supervisor
        if run is not None and supervisor is not None:
            supervisor.post(lambda: run.cancel(number))

    def _here(self) -> Supervisor:
        if self._supervisor is None or self._supervisor.thread != threading.get_ident():
            raise RuntimeError("a ticket is waited for by the thread that began it")
        if self._supervisor.closed:
            raise RuntimeError("this was begun before a fork, and is the parent's to wait for")
        return self._supervisor

    def _cancel_here(self, number: int) -> None:
        if self._run is not None and not self.answered:
            self._run.cancel(number)

    # For the engine.

    def start(self, run: Supervised, cancel: CancelToken | None) -> None:
        assert self._supervisor is not None
        self._run = run
        if cancel is not None:
            self._unsubscribe = cancel.subscribe(self.cancel)
        called_off = cancel is not None and cancel.cancelled
        self._supervisor.begin(run, called_off=called_off)

    def settle(self, outcome: A) -> None:
        """The answer is there. Nothing of the run is held on to."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        run, supervisor, tell = self._run, self._supervisor, self._tell
        self.outcome, self.answered = outcome, True
        if run is not None and supervisor is not None:
            supervisor.ended(run)
        self._run = self._supervisor = self._tell = None
        if tell is not None:
            tell()


def _answered(future: "Future[None]", thread: int) -> None:
    if thread != threading.get_ident():
        future.get_loop().call_soon_threadsafe(_answered, future, thread)
    elif not future.done():
        future.set_result(None)


class Engine:
    """Runs plans for any number of threads and event loops.

    `ours`: this process is nacre's own and has made itself the subreaper, see `process.ours`.
    `keeps`: a loop is kept for the next command, until the engine is closed or forgotten.
    `warms`: shells of sessions are started before somebody wants them.
    `leave`: what becomes of the pipes of a command that has left something running.
    """

    _resting: Supervisor | None = None

    def __init__(
        self,
        *,
        ours: bool = False,
        keeps: bool = False,
        warms: bool = False,
        leave: Leave = leftovers.shelve,
    ) -> None:
        self._ours = ours
        self._keeps = keeps
        self.sessions = Rememberer(run_alone, keeps=warms)
        self.leave = leave
        self._slots = Slots()
        self._numbers = itertools.count(1)
        self._supervisors: dict[int, Supervisor] = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        _engines.add(self)

    def begin(
        self,
        plan: Plan,
        *,
        listen: Listener | Listening | None = None,
        cancel: CancelToken | None = None,
        record: "Record | None" = None,
    ) -> Ticket[Outcome]:
        """Start a plan, or put it in line. Raises Refused when nothing can be started at all.

        `record` says what the run is called, and takes down what becomes of it."""
        if listen is not None and not isinstance(listen, Listening):
            listen = Listening(listener=listen)
        name = f"u{next(self._numbers)}" if record is None else ""  # u: nobody writes it down
        return self.attend(
            lambda ground, answer: Run(
                name, plan, ground, listening=listen, record=record, answer=answer
            ),
            cancel,
        )

    def attend(self, make: Make[A], cancel: CancelToken | None = None) -> Ticket[A]:
        """Have something waited for that is made on the ground of the calling thread."""
        supervisor = self._supervisor()
        ticket: Ticket[A] | None = None
        try:
            ticket = Ticket(supervisor)
            ticket.start(make(supervisor.ground, ticket.settle), cancel)
        except BaseException:
            if ticket is not None:
                ticket.abandon()
            supervisor.rest_if_idle()
            raise
        return ticket

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Have `ready` called in a step of this thread whenever `fd` can be read; it may begin
        nothing itself. For an engine that keeps its loop. Raises OSError."""
        self._supervisor().ground.loop.watch(fd, ready)

    def forget(self, fd: int) -> None:
        self._supervisor().ground.loop.forget(fd)

    def step(self, patience: float | None = None) -> None:
        """Serve all that this thread has begun or watches, once, waiting at most so long."""
        self._supervisor().drive(patience)

    def wake(self) -> None:
        """From any thread or signal handler: end the step that waits."""
        with self._lock:
            for supervisor in (*self._supervisors.values(), self._resting):
                if supervisor is not None:
                    supervisor.post(_nothing)

    def signal(self, ask: Signal) -> Done:
        """Send a signal to everything that a live run has started, from any thread."""
        with self._lock:
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            for run in list(supervisor.runs):
                if run.name and run.name == ask.run:
                    return Done(found=supervisor.post(partial(run.signal, ask.signal)))
        return Done(found=False)

    def close(self) -> None:
        """Stop whatever is still being waited for, and wait until it is gone.

        In a listener there is nothing to wait for, since its own command waits for it.
        """
        with self._lock:
            self._closed = True
            self._retire()
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.closing = True
            supervisor.post(supervisor.cancel_all)
        if isinstance(threading.current_thread(), ListenerThread):
            return
        for supervisor in supervisors:
            while not supervisor.closed:
                if supervisor.driven_here:
                    break  # we are a signal handler of whoever drives, and does it after us
                # Whoever began these may have gone without waiting for them.
                if supervisor.attended:
                    self._wait_a_moment()
                else:
                    supervisor.drive(_MOMENT)
        self.sessions.close()

    def _wait_a_moment(self) -> None:
        with self._changed:
            self._changed.wait(_MOMENT)

    def _supervisor(self) -> Supervisor:
        with self._lock:
            if self._closed:
                raise Refused(Closed())
            ident = threading.get_ident()
            supervisor = self._supervisors.get(ident)
            if supervisor is None:
                supervisor = self._resting
                if supervisor is None or not supervisor.ground.intact():
                    supervisor = Supervisor(self._ground(), ref(self))
                supervisor.thread = ident
                # In this order: a signal handler that wants to wake us must find one or the other.
                self._supervisors[ident] = supervisor
                self._resting = None
            return supervisor

    def _ground(self) -> Ground:
        try:
            return Ground(self._slots, ours=self._ours, leave=self.leave, sessions=self.sessions)
        except OSError as error:
            raise Refused(NoDescriptors(limit=descriptor_limit())) from error

    def idle(self, supervisor: Supervisor) -> None:
        """A supervisor has no more runs. One may rest, for whoever comes next."""
        with self._lock:
            if supervisor is self._resting:
                return
            rests = self._keeps and not self._closed and self._resting is None
            if rests:
                self._resting = supervisor
            if self._supervisors.get(supervisor.thread) is supervisor:
                del self._supervisors[supervisor.thread]
            if not rests:
                supervisor.close()
            if self._closed:
                self._changed.notify_all()

    def _retire(self) -> None:
        supervisor, self._resting = self._resting, None
        if supervisor is not None and supervisor.ground.intact():
            supervisor.retire()

    def __del__(self) -> None:
        self._retire()
        self.sessions.close()

    def forked(self) -> None:
        """We are a fork of our host: the runs are the parent's, and so are their loops."""
        self._lock = threading.RLock()  # somebody may have held the old one, and is not here
        self._changed = threading.Condition(self._lock)
        if self._resting is not None:
            self._resting.ground.forked()
            self._resting.close()
            self._resting = None
        for supervisor in self._supervisors.values():
            supervisor.ground.forked()
            supervisor.closed = True
        self._supervisors = {}
        self._slots = Slots()
        self.sessions.forked()


def run_alone(plan: Plan, cancel: CancelToken) -> None:
    """Something of our own, to its end; what counts is what it does."""
    engine = Engine()
    try:
        engine.begin(plan, cancel=cancel).wait()
    except Refused:
        return
    finally:
        engine.close()


def _nothing() -> None:
    """To be woken by."""


_engines: WeakSet[Engine] = WeakSet()


def _forked() -> None:
    leftovers.forked()
    for engine in list(_engines):
        engine.forked()


os.register_at_fork(after_in_child=_forked)
