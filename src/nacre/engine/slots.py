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

from nacre.process.child import descriptor_limit

# For whatever else the process opens meanwhile, and for what one spawn needs in passing.
_RESERVE: Final = 64
# Below this nobody counts: an ordinary process can always hold so many.
_FREE: Final = 96


class Where(enum.Enum):
    OUT = "out"
    IN_LINE = "in line"
    IN = "in"


class Guest(Protocol):
    """Who takes a place."""

    cost: int  # descriptors
    lane: str | None
    where: Where  # for us to change

    def granted(self) -> None:
        """Called by whoever leaves, on any thread: the place is yours."""
        ...


class Slots:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = 0
        self._capacity: int | None = None
        self._line: deque[Guest] = deque()
        self._lanes: set[str] = set()  # in which somebody runs
        self._granted: deque[Guest] = deque()  # and not yet told

    def enter(self, guest: Guest) -> bool:
        """Take a place now, or stand in line until it is granted."""
        with self._lock:
            if self._may_enter(guest):
                self._let_in(guest)
                return True
            guest.where = Where.IN_LINE
            self._line.append(guest)
            return False

    def step_back(self, guest: Guest) -> bool:
        """There was no room after all: stand first in line. False when nobody else will leave."""
        with self._lock:
            self._remove(guest)
            if self._used <= 0:
                return False
            # The guess was too high: what is used now is what there is.
            self._capacity = self._used
            guest.where = Where.IN_LINE
            self._line.appendleft(guest)
            return True

    def leave_lane(self, guest: Guest) -> None:
        """It goes on, but nobody need wait for it any more."""
        with self._lock:
            if guest.where is Where.IN and guest.lane is not None:
                self._lanes.discard(guest.lane)
                guest.lane = None
                if self._line or self._granted:
                    self._admit_next()

    def leave(self, guest: Guest) -> None:
        with self._lock:
            self._remove(guest)
            if self._line or self._granted:
                self._admit_next()

    def _admit_next(self) -> None:
        """An interrupt may come anywhere here; then the next who leaves goes on with it."""
        for guest in list(self._line):
            if guest.where is Where.IN_LINE:
                if guest.lane in self._lanes:
                    continue  # and those behind it need not wait for that
                if not self._fits(guest.cost):
                    break
                self._granted.append(guest)
                self._let_in(guest)
            self._line.remove(guest)
        while self._granted:
            self._granted[0].granted()
            self._granted.popleft()

    def _may_enter(self, guest: Guest) -> bool:
        """Nobody is passed by who only waits for room."""
        if guest.lane in self._lanes or not self._fits(guest.cost):
            return False
        return all(each.lane in self._lanes for each in self._line)

    def _let_in(self, guest: Guest) -> None:
        guest.where = Where.IN
        self._used += guest.cost
        if guest.lane is not None:
            self._lanes.add(guest.lane)

    def _remove(self, guest: Guest) -> None:
        if guest.where is Where.IN:
            self._used -= guest.cost
            if guest.lane is not None:
                self._lanes.discard(guest.lane)
        elif guest.where is Where.IN_LINE:
            self._line.remove(guest)
        guest.where = Where.OUT
        if self._used <= 0:
            self._capacity = None

    def _fits(self, cost: int) -> bool:
        if self._used <= 0:
            return True
        if self._capacity is None:
            if self._used + cost <= _FREE:
                return True
            self._capacity = self._measured()
        return self._used + cost <= self._capacity

    def _measured(self) -> int:
        limit = descriptor_limit()
        try:
            others = len(os.listdir("/proc/self/fd")) - self._used
        except OSError:
            others = 0
        return max(_FREE // 4, limit - others - _RESERVE)
