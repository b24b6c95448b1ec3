"""Queue of runs: limits how many commands run at once by the number of free descriptors.

The queue counts descriptors because they run out before other resources: `ulimit -n 1024` is too
low for 500 commands at once. Runs that share a lane execute one at a time, in the order of their
numbers, which is the order of the calls. All threads that use an engine share the engine's one
queue of runs.
"""

import enum
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from nacre.process.spawner import descriptor_limit

if TYPE_CHECKING:
    from nacre.engine.run import Run

# Number of descriptors that the queue leaves free for other files of the process and for the
# temporary needs of one spawn.
_RESERVE: Final = 64
# Number of descriptors that runs may use before the queue checks the descriptor limit of the
# process; an ordinary process can always open this many.
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
        # Lanes that have a running command, each with the id of its run; a lane is a group of runs
        # that execute one at a time.
        self._busy_lanes: dict[str, str] = {}
        self.lanes_closed = False  # whether all runs with a lane must wait; see `close_lanes`
        # runs that have a slot (permission to start) but are not yet notified of it
        self._admitted: deque[Run] = deque()

    def close_lanes(self) -> None:
        """Queue all runs with a lane until `open_lanes`. Calls that were made before a new warden
        was ready reach it in any order, so the warden first collects them."""
        self.lanes_closed = True

    def open_lanes(self) -> None:
        with self._lock:
            self.lanes_closed = False
            self._admit_next()

    def enter(self, run: "Run") -> bool:
        """Give the run a slot (permission to start) and return True, or queue the run and return
        False."""
        with self._lock:
            if self._can_enter(run):
                self._admit(run)
                return True
            run.queue_state = QueueState.QUEUED
            self._waiting.insert(self._place(run), run)
            return False

    def _place(self, run: "Run") -> int:
        """Return the index at which a run joins the queue: before the first run of its lane with a
        higher number, otherwise at the end."""
        if run.lane is not None:
            for index, other in enumerate(self._waiting):
                if other.lane == run.lane and _number(other) > _number(run):
                    return index
        return len(self._waiting)

    def requeue_first(self, run: "Run") -> bool:
        """Put a run back at the head of the queue after its spawn failed for lack of descriptors.
        Return False, without queueing the run, if no other run can free descriptors by ending."""
        with self._lock:
            self._remove(run)
            if self._used <= 0:
                return False
            # A spawn has failed for lack of descriptors, so runs cannot use more descriptors than
            # they use now.
            self._capacity = self._used
            run.queue_state = QueueState.QUEUED
            self._waiting.appendleft(run)
            return True

    def lane_holder(self, lane: str | None) -> str:
        """Return the id of the run that executes in a lane; an empty string if there is none."""
        with self._lock:
            return "" if lane is None else self._busy_lanes.get(lane, "")

    def leave_lane(self, run: "Run") -> None:
        """Free the lane (group of runs that execute one at a time) of a run that goes on running,
        so that the next run of the lane can start."""
        with self._lock:
            if run.queue_state is QueueState.ADMITTED and run.lane is not None:
                self._busy_lanes.pop(run.lane, None)
                run.lane = None
                if self._waiting or self._admitted:
                    self._admit_next()

    def leave(self, run: "Run") -> None:
        with self._lock:
            self._remove(run)
            if self._waiting or self._admitted:
                self._admit_next()

    def _admit_next(self) -> None:
        """Give a slot (permission to start) to each queued run that may start now, and notify the
        run. An interrupt (Ctrl-C) may leave runs that have a slot but were not notified; the next
        call of `_admit_next` notifies these runs."""
        for run in list(self._waiting):
            if run.queue_state is QueueState.QUEUED:
                if self._lane_is_busy(run):
                    # Other runs may overtake a run that waits for its lane (a group of runs that
                    # execute one at a time).
                    continue
                if not self._fits(run.cost):
                    break
                self._admitted.append(run)
                self._admit(run)
            self._waiting.remove(run)
        while self._admitted:
            self._admitted[0].on_slot()
            self._admitted.popleft()

    def _can_enter(self, run: "Run") -> bool:
        """Return whether a run may start now, instead of waiting in the queue. No run may overtake
        a queued run that waits only for free descriptors."""
        if self._lane_is_busy(run) or not self._fits(run.cost):
            return False
        return all(map(self._lane_is_busy, self._waiting))

    def _lane_is_busy(self, run: "Run") -> bool:
        return run.lane is not None and (self.lanes_closed or run.lane in self._busy_lanes)

    def _admit(self, run: "Run") -> None:
        run.queue_state = QueueState.ADMITTED
        self._used += run.cost
        if run.lane is not None:
            self._busy_lanes[run.lane] = run.name

    def _remove(self, run: "Run") -> None:
        if run.queue_state is QueueState.ADMITTED:
            self._used -= run.cost
            if run.lane is not None:
                self._busy_lanes.pop(run.lane, None)
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


def _number(run: "Run") -> int:
    """Return the number in a run's name, such as `r7`; 0 for a run without a number."""
    digits = run.name[1:]
    return int(digits) if run.name.startswith("r") and digits.isdigit() else 0
