"""Queue of runs: limits how many commands run at once by the number of free descriptors.

Descriptors are counted because descriptors run out first (`ulimit -n 1024` and 500 commands at
once). Runs that share a lane execute one at a time, in order of arrival. All threads of an engine
share one queue.
"""

import enum
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from nacre.process.spawner import descriptor_limit

if TYPE_CHECKING:
    from nacre.engine.run import Run

# Descriptors reserved for other files of the process and for the temporary needs of one spawn.
_RESERVE: Final = 64
# Up to this number of descriptors the queue does not check the descriptor limit of the process: an
# ordinary process can always open this many.
_ALWAYS_FREE: Final = 96


class QueueState(enum.Enum):
    NOT_QUEUED = "out"
    QUEUED = "in line"
    ADMITTED = "in"


class RunQueue:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = 0
        self._capacity: int | None = None
        self._waiting: deque[Run] = deque()
        self._busy_lanes: set[str] = set()  # lanes that have a running command
        self._admitted: deque[Run] = deque()  # runs that have a slot but are not yet notified

    def enter(self, run: "Run") -> bool:
        """Give the run a slot and return True, or queue the run and return False."""
        with self._lock:
            if self._can_enter(run):
                self._admit(run)
                return True
            run.queue_state = QueueState.QUEUED
            self._waiting.append(run)
            return False

    def requeue_first(self, run: "Run") -> bool:
        """Put a run that got no descriptors back at the head of the queue. Return False if no other
        run holds descriptors."""
        with self._lock:
            self._remove(run)
            if self._used <= 0:
                return False
            # The measured capacity was too high: no more descriptors are available than in use now.
            self._capacity = self._used
            run.queue_state = QueueState.QUEUED
            self._waiting.appendleft(run)
            return True

    def leave_lane(self, run: "Run") -> None:
        """Free the lane of a run that goes on running, for the next run of that lane."""
        with self._lock:
            if run.queue_state is QueueState.ADMITTED and run.lane is not None:
                self._busy_lanes.discard(run.lane)
                run.lane = None
                if self._waiting or self._admitted:
                    self._admit_next()

    def leave(self, run: "Run") -> None:
        with self._lock:
            self._remove(run)
            if self._waiting or self._admitted:
                self._admit_next()

    def _admit_next(self) -> None:
        """Give free slots to queued runs and notify these runs. If an interrupt cuts this short,
        the next run that leaves the queue continues the work."""
        for run in list(self._waiting):
            if run.queue_state is QueueState.QUEUED:
                if run.lane in self._busy_lanes:
                    continue  # runs further back in the queue may overtake this run
                if not self._fits(run.cost):
                    break
                self._admitted.append(run)
                self._admit(run)
            self._waiting.remove(run)
        while self._admitted:
            self._admitted[0].on_slot()
            self._admitted.popleft()

    def _can_enter(self, run: "Run") -> bool:
        """Return whether the run may start now. A run must not overtake a queued run that waits
        only for descriptors."""
        if run.lane in self._busy_lanes or not self._fits(run.cost):
            return False
        return all(each.lane in self._busy_lanes for each in self._waiting)

    def _admit(self, run: "Run") -> None:
        run.queue_state = QueueState.ADMITTED
        self._used += run.cost
        if run.lane is not None:
            self._busy_lanes.add(run.lane)

    def _remove(self, run: "Run") -> None:
        if run.queue_state is QueueState.ADMITTED:
            self._used -= run.cost
            if run.lane is not None:
                self._busy_lanes.discard(run.lane)
        elif run.queue_state is QueueState.QUEUED:
            self._waiting.remove(run)
        run.queue_state = QueueState.NOT_QUEUED
        if self._used <= 0:
            self._capacity = None

    def _fits(self, cost: int) -> bool:
        if self._used <= 0:
            return True
        if self._capacity is None:
            if self._used + cost <= _ALWAYS_FREE:
                return True
            self._capacity = self._measure_capacity()
        return self._used + cost <= self._capacity

    def _measure_capacity(self) -> int:
        limit = descriptor_limit()
        try:
            others = len(os.listdir("/proc/self/fd")) - self._used
        except OSError:
            others = 0
        return max(_ALWAYS_FREE // 4, limit - others - _RESERVE)
