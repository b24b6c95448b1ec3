"""Stopping a process tree: a signal, the grace, KILL, then polling until no process is left.

A run creates its `Stopping` object only when the run is about to be stopped. So a command that
exits normally has no overhead. The lifecycle table decides when each step is taken; the run arms
the timers.
"""

import signal as signals
from collections.abc import Callable
from typing import Final

from nacre.eventloop import Callback, Timer
from nacre.process.process_tree import ProcessTree
from nacre.procfs.processes import Process

_FIRST_POLL: Final = 0.001  # seconds between the first two polls of the process tree; then doubled
_SLOWEST_POLL: Final = 0.05  # maximum seconds between two polls of the process tree


class Stopping:
    def __init__(self, signal: int, grace: float) -> None:
        """`signal` is the first signal sent; KILL follows `grace` seconds later."""
        self.signal = signal
        self.grace = grace
        self.killing = False
        self._interval = _FIRST_POLL
        self._timer: Timer | None = None

    def request(self, tree: ProcessTree) -> None:
        tree.signal(self.signal)

    def request_leftovers(self, tree: ProcessTree) -> None:
        """Send TERM to the leftover processes, unless the first signal was TERM already. bash
        starts background jobs with INT ignored, so INT would not end these jobs."""
        if self.signal != signals.SIGTERM:
            tree.signal(signals.SIGTERM)

    def kill(self, tree: ProcessTree) -> None:
        self._interval = _FIRST_POLL
        tree.kill()
        self.killing = True

    def find_remaining(self, tree: ProcessTree) -> list[Process]:
        """Return the processes of the tree that are still alive. Once KILL has been sent to the
        tree, each call of `find_remaining` sends KILL again."""
        return tree.kill() if self.killing else tree.members()

    def poll_later(self, call_later: Callable[[float, Callback], Timer], poll: Callback) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = call_later(self._interval, poll)
        self._interval = min(self._interval * 2, _SLOWEST_POLL)
