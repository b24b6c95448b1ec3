"""One loop that serves many commands at once, driven by whoever waits.

A thread that waits calls `drive`; an asyncio event loop watches our descriptor and makes the same
steps. There is one supervisor per waiting thread (an event loop is one), made for its first
command and closed after its last: an idle engine holds no descriptor.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from nacre.engine import leftovers
from nacre.engine.run import Ground, Run
from nacre.engine.slots import Slots
from nacre.loop import Call, now

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle


class Supervisor:
    def __init__(self, slots: Slots, *, ours: bool, idle: Callable[["Supervisor"], None]) -> None:
        self.ground = Ground(slots, ours=ours)
        self.thread = threading.get_ident()
        self.runs: dict[str, Run] = {}
        self._idle = idle
        self._driving = threading.Lock()
        self._interrupted = False  # somebody may have more to do
        self._process = os.getpid()
        self._leftovers: list[leftovers.Leftover] = []
        self._host: AbstractEventLoop | None = None
        self._alarm: TimerHandle | None = None
        self.closed = False

    def post(self, call: Call) -> bool:
        """From any thread: have this done by whoever drives. Not from a fork of our host: the runs
        are its parent's."""
        return os.getpid() == self._process and self.ground.loop.post(call)

    def begin(self, run: Run, *, called_off: bool) -> None:
        self._adopt_leftovers()
        self.runs[run.name] = run
        if called_off:
            run.cancel()
        else:
            run.begin()

    def ended(self, run: Run) -> None:
        """A run has given its answer. The last one takes the light out."""
        self.runs.pop(run.name, None)
        self.close_if_idle()

    def close_if_idle(self) -> None:
        if not self.runs:
            self.close()

    def cancel_all(self, number: int = signal.SIGTERM) -> None:
        for run in list(self.runs.values()):
            run.cancel(number)

    def drive(self, patience: float | None = None) -> None:
        """Serve everything here once, waiting for something to do at most so long."""
        with self._driving:
            if not self.closed:
                self._step(patience)

    def _step(self, patience: float | None) -> None:
        if self._interrupted:
            self._interrupted = False
            for run in list(self.runs.values()):
                run.work()
            patience = 0.0
        try:
            self.ground.loop.step(patience)
        except BaseException:
            self._interrupted = True
            raise
        if self._host is not None and not self.closed:
            self._set_alarm()

    @property
    def attended(self) -> bool:
        """Whether somebody else drives us at this moment."""
        if self.thread == threading.get_ident():
            return False
        return self._driving.locked() or (self._host is not None and self._host.is_running())

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._idle(self)
        self._detach()
        for leftover in self._leftovers:
            leftovers.unwatch(leftover, self.ground.loop)
            if not leftover.over:
                leftovers.shelve(leftover)
        self.ground.close()

    def _adopt_leftovers(self) -> None:
        for leftover in leftovers.unshelve():
            leftovers.watch(leftover, self.ground.loop)
            self._leftovers.append(leftover)

    # Driven by an event loop.

    def attach(self, host: "AbstractEventLoop") -> None:
        """Have this event loop drive us from now on."""
        if self._host is not host:
            self._detach()
            self._host = host
            host.add_reader(self.ground.loop.fileno(), self._turn)
        self._set_alarm()

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
