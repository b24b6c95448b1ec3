"""How many commands run at once: as many as there are descriptors, the others wait in line.

Counted in descriptors, because that is what runs out first (`ulimit -n 1024` and 500 commands
at once). Shared by all threads of an engine.
"""

import enum
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from nacre.process.child import descriptor_limit

# For whatever else the process opens meanwhile, and for what one spawn needs in passing.
_RESERVE: Final = 64
# Below this nobody counts: an ordinary process can always hold so many.
_FREE: Final = 96


class _Where(enum.Enum):
    OUT = "out"
    IN_LINE = "in line"
    IN = "in"


class Slot:
    """One command's place, of `cost` descriptors."""

    where = _Where.OUT

    def __init__(self, cost: int, granted: Callable[[], object]) -> None:
        self.cost = cost
        self.granted = granted


class Slots:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = 0
        self._capacity: int | None = None
        self._line: deque[Slot] = deque()

    def enter(self, slot: Slot) -> bool:
        """Take the place now, or stand in line: then `granted` is called, by whoever leaves."""
        with self._lock:
            if not self._line and self._fits(slot):
                slot.where = _Where.IN
                self._used += slot.cost
                return True
            slot.where = _Where.IN_LINE
            self._line.append(slot)
            return False

    def step_back(self, slot: Slot) -> bool:
        """There was no room after all: stand first in line. False when nobody else will leave."""
        with self._lock:
            self._remove(slot)
            if self._used <= 0:
                return False
            # The guess was too high: what is used now is what there is.
            self._capacity = self._used
            slot.where = _Where.IN_LINE
            self._line.appendleft(slot)
            return True

    def leave(self, slot: Slot) -> None:
        with self._lock:
            self._remove(slot)
            admitted = self._next_ones() if self._line else ()
        for each in admitted:
            each.granted()

    def _next_ones(self) -> list[Slot]:
        admitted = []
        while self._line and self._fits(self._line[0]):
            admitted.append(first := self._line.popleft())
            first.where = _Where.IN
            self._used += first.cost
        return admitted

    def _remove(self, slot: Slot) -> None:
        if slot.where is _Where.IN:
            self._used -= slot.cost
        elif slot.where is _Where.IN_LINE:
            self._line.remove(slot)
        slot.where = _Where.OUT
        if self._used <= 0:
            self._capacity = None

    def _fits(self, slot: Slot) -> bool:
        if self._used <= 0:
            return True
        if self._capacity is None:
            if self._used + slot.cost <= _FREE:
                return True
            self._capacity = self._measured()
        return self._used + slot.cost <= self._capacity

    def _measured(self) -> int:
        limit = descriptor_limit()
        try:
            others = len(os.listdir("/proc/self/fd")) - self._used
        except OSError:
            others = 0
        return max(_FREE // 4, limit - others - _RESERVE)
