"""How many commands run at once: as many as there are descriptors, the others wait in line.

Counted in descriptors, because that is what runs out first (`ulimit -n 1024` and 500 commands
at once). Of those that share a lane only one runs at a time, in the order of their coming.
Shared by all threads of an engine.
"""

import enum
import os
import threading
from collections import deque
from typing import Final, Protocol

from nacre.process.spawner import descriptor_limit

# For whatever else the process opens meanwhile, and for what one spawn needs in passing.
_RESERVE: Final = 64
# Below this nobody counts: an ordinary process can always hold so many.
_ALWAYS_FREE: Final = 96


class QueueState(enum.Enum):
    NOT_QUEUED = "out"
    QUEUED = "in line"
    ADMITTED = "in"


class QueuedRun(Protocol):
    """Who takes a place."""

    cost: int  # descriptors
    lane: str | None
    queue_state: QueueState  # for us to change

    def on_slot(self) -> None:
        """Called by whoever leaves, on any thread: the place is yours."""
        ...


class RunQueue:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = 0
        self._capacity: int | None = None
        self._waiting: deque[QueuedRun] = deque()
        self._busy_lanes: set[str] = set()  # in which somebody runs
        self._admitted: deque[QueuedRun] = deque()  # and not yet told

    def enter(self, guest: QueuedRun) -> bool:
        """Take a place now, or stand in line until it is granted."""
        with self._lock:
            if self._can_enter(guest):
                self._admit(guest)
                return True
            guest.queue_state = QueueState.QUEUED
            self._waiting.append(guest)
            return False

    def requeue_first(self, guest: QueuedRun) -> bool:
        """There was no room after all: stand first in line. False when nobody else will leave."""
        with self._lock:
            self._remove(guest)
            if self._used <= 0:
                return False
            # The guess was too high: what is used now is what there is.
            self._capacity = self._used
            guest.queue_state = QueueState.QUEUED
            self._waiting.appendleft(guest)
            return True

    def leave_lane(self, guest: QueuedRun) -> None:
        """It goes on, but nobody need wait for it any more."""
        with self._lock:
            if guest.queue_state is QueueState.ADMITTED and guest.lane is not None:
                self._busy_lanes.discard(guest.lane)
                guest.lane = None
                if self._waiting or self._admitted:
                    self._admit_next()

    def leave(self, guest: QueuedRun) -> None:
        with self._lock:
            self._remove(guest)
            if self._waiting or self._admitted:
                self._admit_next()

    def _admit_next(self) -> None:
        """An interrupt may come anywhere here; then the next who leaves goes on with it."""
        for guest in list(self._waiting):
            if guest.queue_state is QueueState.QUEUED:
                if guest.lane in self._busy_lanes:
                    continue  # and those behind it need not wait for that
                if not self._fits(guest.cost):
                    break
                self._admitted.append(guest)
                self._admit(guest)
            self._waiting.remove(guest)
        while self._admitted:
            self._admitted[0].on_slot()
            self._admitted.popleft()

    def _can_enter(self, guest: QueuedRun) -> bool:
        """Nobody is passed by who only waits for room."""
        if guest.lane in self._busy_lanes or not self._fits(guest.cost):
            return False
        return all(each.lane in self._busy_lanes for each in self._waiting)

    def _admit(self, guest: QueuedRun) -> None:
        guest.queue_state = QueueState.ADMITTED
        self._used += guest.cost
        if guest.lane is not None:
            self._busy_lanes.add(guest.lane)

    def _remove(self, guest: QueuedRun) -> None:
        if guest.queue_state is QueueState.ADMITTED:
            self._used -= guest.cost
            if guest.lane is not None:
                self._busy_lanes.discard(guest.lane)
        elif guest.queue_state is QueueState.QUEUED:
            self._waiting.remove(guest)
        guest.queue_state = QueueState.NOT_QUEUED
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
