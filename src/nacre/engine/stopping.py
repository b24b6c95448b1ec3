"""Ending the process tree of a run: a signal, the grace, KILL, polling until no process is left.

Made when a run is about to be stopped, so that a command that ends by itself pays nothing for it.
The lifecycle says what is done when; the run arms the timers.
"""

import signal as signals
from collections.abc import Callable
from typing import Final

from nacre.eventloop import Callback, Timer
from nacre.process.process_tree import ProcessTree
from nacre.procfs.processes import Process

_FIRST_POLL: Final = 0.001  # seconds between two looks at the tree, doubled up to the slowest
_SLOWEST_POLL: Final = 0.05


class Stopping:
    def __init__(self, signal: int, grace: float) -> None:
        """`signal` is sent first; `grace` is the time in seconds from then to KILL."""
        self.signal = signal
        self.grace = grace
        self.killing = False
        self._interval = _FIRST_POLL
        self._timer: Timer | None = None

    def request(self, tree: ProcessTree) -> None:
        tree.signal(self.signal)

    def request_leftovers(self, tree: ProcessTree) -> None:
        """Send TERM to what the shell left: bash starts background jobs with INT ignored."""
        if self.signal != signals.SIGTERM:
            tree.signal(signals.SIGTERM)

    def kill(self, tree: ProcessTree) -> None:
        self._interval = _FIRST_POLL
        tree.kill()
        self.killing = True

    def find_remaining(self, tree: ProcessTree) -> list[Process]:
        """The members that are still alive; kills them again once killing has begun."""
        return tree.kill() if self.killing else tree.members()

    def poll_later(self, call_later: Callable[[float, Callback], Timer], poll: Callback) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = call_later(self._interval, poll)
        self._interval = min(self._interval * 2, _SLOWEST_POLL)
