"""Stopping a process tree: a signal, the grace (a wait), KILL, then polling until no process is
left.

A run creates its `Stopping` object only when the run is about to be stopped, so a command that
exits normally has no overhead. The state table in `engine/lifecycle` decides when a run's processes
get a signal, and `engine/run` sets the timer for the seconds between TERM and KILL.
"""

import signal as signals
from collections.abc import Callable
from typing import Final

from nacre.eventloop import Callback, Timer
from nacre.process.process_tree import ProcessTree
from nacre.procfs.processes import Process

# Seconds between the first two polls of the process tree; the interval doubles after each poll.
_FIRST_POLL: Final = 0.001
_SLOWEST_POLL: Final = 0.05  # maximum seconds between two polls of the process tree


class Stopping:
    def __init__(self, signal: int, grace: float) -> None:
        """`signal` is the first signal sent to the process tree; KILL follows `grace` seconds
        later."""
        self.signal = signal
        self.grace = grace
        self.killing = False
        self._interval = _FIRST_POLL
        self._timer: Timer | None = None

    def request(self, tree: ProcessTree) -> None:
        tree.signal(self.signal)

    def request_leftovers(self, tree: ProcessTree) -> None:
        """Send TERM to the processes that outlive the run's shell, unless the first signal to the
        process tree was already TERM. If the first signal to a process tree is INT, background jobs
        survive it, because bash starts background jobs with INT ignored."""
        if self.signal != signals.SIGTERM:
            tree.signal(signals.SIGTERM)

    def kill(self, tree: ProcessTree) -> None:
        self._interval = _FIRST_POLL
        tree.kill()
        self.killing = True

    def find_remaining(self, tree: ProcessTree) -> list[Process]:
        """Return the processes of a process tree that are still alive. Once KILL has been sent to
        the process tree, each call of `find_remaining` sends KILL again."""
        return tree.kill() if self.killing else tree.members()

    def poll_later(self, call_later: Callable[[float, Callback], Timer], poll: Callback) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = call_later(self._interval, poll)
        self._interval = min(self._interval * 2, _SLOWEST_POLL)
