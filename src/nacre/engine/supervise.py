"""One loop that serves many commands at once, driven by whoever waits.

A thread that waits calls `drive`; an asyncio event loop watches our descriptor and makes the same
steps. There is one supervisor per waiting thread (an event loop is one), made for its first
command; after its last it rests, or is closed.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from nacre.engine import leftovers
from nacre.engine.ground import Ground
from nacre.loop import Call, now
from nacre.refusals import Closed, Refused

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle


class Keeper(Protocol):
    def idle(self, supervisor: "Supervisor") -> None: ...


class Supervised(Protocol):
    """Something that is waited for: a run of our own, or one that somebody else has."""

    name: str

    def begin(self) -> None: ...

    def cancel(self, number: int = ...) -> None:
        """Stop it, beginning with this signal; a second time: kill it."""
        ...

    def signal(self, number: int) -> None: ...

    def work(self) -> None:
        """Do again what an interrupt has left undone."""
        ...


class Supervisor:
    closed = False
    closing = False  # whatever begins here is called off
    _driver = 0  # the thread that drives, at this moment
    _interrupted = False  # somebody may have more to do
    _host: "AbstractEventLoop | None" = None
    _alarm: "TimerHandle | None" = None

    def __init__(self, ground: Ground, keeper: Callable[[], Keeper | None]) -> None:
        """`keeper` says who is told that we rest; nobody, when it has been forgotten meanwhile."""
        self.ground = ground
        self.thread = threading.get_ident()
        self.runs: set[Supervised] = set()
        self._keeper = keeper
        self._driving = threading.Lock()
        self._leftovers: list[leftovers.Leftover] = []

    def post(self, call: Call) -> bool:
        """From any thread: have this done by whoever drives. False when nobody will."""
        return not self.closed and self.ground.loop.post(call)

    def begin(self, run: Supervised, *, called_off: bool) -> None:
        """Raises Refused when we have been closed meanwhile, from another thread."""
        self._check_not_inside()
        with self._driving:
            if self.closed:
                raise Refused(Closed())
            self._adopt_leftovers()
            self.runs.add(run)
            if called_off or self.closing:
                run.cancel()
            else:
                run.begin()

    def ended(self, run: Supervised) -> None:
        """A run has given its answer."""
        if run in self.runs:  # once
            self.runs.discard(run)
            self.rest_if_idle()

    def rest_if_idle(self) -> None:
        """After the last run: leave nothing with us that others could see to."""
        if self.runs or self.closed or self.ground.listens:
            return
        if self._host is not None:
            self._detach()
        if self._leftovers:
            self._shelve_leftovers()
        self.ground.loop.rest()
        keeper = self._keeper()
        if keeper is None:
            self.close()
        else:
            keeper.idle(self)

    def cancel_all(self) -> None:
        for run in list(self.runs):
            run.cancel()
        self.ground.stop_listening()
        self.rest_if_idle()

    def drive(self, patience: float | None = None) -> None:
        """Serve everything here once, waiting for something to do at most so long."""
        self._check_not_inside()
        with self._driving:
            self._driver = threading.get_ident()
            try:
                if not self.closed:
                    self._step(patience)
            finally:
                self._driver = 0

    def _step(self, patience: float | None) -> None:
        lonely = not self.runs  # only somebody far away has something to tell us
        try:
            if self._interrupted:
                for run in list(self.runs):
                    run.work()
                self._interrupted = False
                patience = 0.0
            self.ground.loop.step(patience)
        except BaseException:
            self._interrupted = True
            raise
        if lonely:
            self.rest_if_idle()
        if self._host is not None and not self.closed:
            self._set_alarm()

    @property
    def driven_here(self) -> bool:
        """Whether we are called by what has interrupted this thread's own driving."""
        return self._driver == threading.get_ident()

    def _check_not_inside(self) -> None:
        if self.driven_here:
            raise RuntimeError(
                "a signal handler cannot run a command while its thread waits for another one;"
                " cancel that one, or run it in a thread"
            )

    @property
    def attended(self) -> bool:
        """Whether somebody else drives us at this moment."""
        if self.thread == threading.get_ident():
            return False
        return self._driving.locked() or (self._host is not None and self._host.is_running())

    def close(self) -> None:
        """Only at rest. From another thread, with nobody inside: by way of `retire`."""
        self.closed = True
        self.ground.close()

    def retire(self) -> None:
        with self._driving:
            self.close()

    def _adopt_leftovers(self) -> None:
        for leftover in leftovers.unshelve():
            leftovers.watch(leftover, self.ground.loop)
            self._leftovers.append(leftover)

    def _shelve_leftovers(self) -> None:
        while self._leftovers:
            leftovers.unwatch(self._leftovers[-1], self.ground.loop)
            if not self._leftovers[-1].over:
                leftovers.shelve(self._leftovers[-1])
            self._leftovers.pop()

    # Driven by an event loop.

    def attach(self, host: "AbstractEventLoop") -> bool:
        """Have this event loop drive us from now on. False when there is nothing left to drive."""
        with self._driving:
            if self.closed or not self.runs:
                return False
            if self._host is not host:
                self._detach()
                self._host = host
                host.add_reader(self.ground.loop.fileno(), self._turn)
            self._set_alarm()
            return True

    def _turn(self) -> None:
        self.drive(0)

    def _set_alarm(self) -> None:
        assert self._host is not None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due = self.ground.loop.due()
        if due is not None:
            self._alarm = self._host.call_later(max(0.0, due - now()), self._turn)

    def _detach(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._host is not None and not self._host.is_closed():
            self._host.remove_reader(self.ground.loop.fileno())
        self._host = None
