"""How many commands run at once: as many as there are descriptors, the others wait in line.

Counted in descriptors, because that is what runs out first (`ulimit -n 1024` and 500 commands
at once). Of those that share a lane only one runs at a time, in the order of their coming.
Shared by all threads of an engine.
"""

import enum
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from nacre.process.spawner import descriptor_limit

if TYPE_CHECKING:
    from nacre.engine.run import Run

# For whatever else the process opens meanwhile, and for what one spawn needs in passing.
_RESERVE: Final = 64
# Below this nobody counts: an ordinary process can always hold so many.
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
        self._busy_lanes: set[str] = set()  # in which somebody runs
        self._admitted: deque[Run] = deque()  # and not yet told

    def enter(self, run: "Run") -> bool:
        """Take a place now, or stand in line until it is granted."""
        with self._lock:
            if self._can_enter(run):
                self._admit(run)
                return True
            run.queue_state = QueueState.QUEUED
            self._waiting.append(run)
            return False

    def requeue_first(self, run: "Run") -> bool:
        """There was no room after all: stand first in line. False when nobody else will leave."""
        with self._lock:
            self._remove(run)
            if self._used <= 0:
                return False
            # The guess was too high: what is used now is what there is.
            self._capacity = self._used
            run.queue_state = QueueState.QUEUED
            self._waiting.appendleft(run)
            return True

    def leave_lane(self, run: "Run") -> None:
        """It goes on, but nobody need wait for it any more."""
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
        """An interrupt may come anywhere here; then the next who leaves goes on with it."""
        for run in list(self._waiting):
            if run.queue_state is QueueState.QUEUED:
                if run.lane in self._busy_lanes:
                    continue  # and those behind it need not wait for that
                if not self._fits(run.cost):
                    break
                self._admitted.append(run)
                self._admit(run)
            self._waiting.remove(run)
        while self._admitted:
            self._admitted[0].on_slot()
            self._admitted.popleft()

    def _can_enter(self, run: "Run") -> bool:
        """Nobody is passed by who only waits for room."""
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
