"""Run tags: numbers that mark every process of a run.

A run tag is the soft RLIMIT_LOCKS value of a process. Linux has not used this limit for twenty
years. Every process inherits the tag through fork, exec, `setsid`, double forks and `env -i`. The
tag costs nothing and adds no environment variable. A tag also contains the number of the outer run
if this process itself belongs to a run. So a nacre started inside a run stays part of that run.
"""

import itertools
import os
import resource
from contextlib import suppress
from typing import Final

from msgspec import Struct

from nacre.procfs import processes

_OWN_BITS: Final = 32
_OUTER_BITS: Final = 24
# Top byte of every run tag. With this byte the largest tag still fits a signed 64-bit number.
_MAGIC: Final = 0x4E


class Tag(Struct, frozen=True):
    own: int
    outer: int

    @property
    def value(self) -> int:
        return (_MAGIC << _OWN_BITS + _OUTER_BITS) | (self.outer << _OWN_BITS) | self.own

    @property
    def as_outer(self) -> int:
        """Number of this run in the tags of the runs that are nested in it."""
        return self.own % (1 << _OUTER_BITS)

    def includes(self, soft_locks: int | None) -> bool:
        """Return whether a process with this soft RLIMIT_LOCKS belongs to this run.

        A process of a run that is nested in this run belongs to this run, too.
        """
        other = parse_tag(soft_locks)
        if other is None:
            return False
        return other.own == self.own or (other.outer == self.as_outer and self.as_outer != 0)


def parse_tag(soft_locks: int | None) -> Tag | None:
    if soft_locks is None or soft_locks >> _OWN_BITS + _OUTER_BITS != _MAGIC:
        return None
    return Tag(
        own=soft_locks % (1 << _OWN_BITS),
        outer=(soft_locks >> _OWN_BITS) % (1 << _OUTER_BITS),
    )


def new_tag() -> Tag | None:
    """Return a tag for a new run; None when the hard RLIMIT_LOCKS is too low for a tag."""
    return TagFactory().new()


class TagFactory:
    """Generator of run tags: consecutive numbers that start at a random number.

    The factory reads this process's RLIMIT_LOCKS, which contains the outer run, only once.
    """

    def __init__(self) -> None:
        soft, self.hard = resource.getrlimit(processes.RLIMIT_LOCKS)
        ours = parse_tag(soft)
        self._outer = ours.as_outer if ours else 0
        self._numbers = itertools.count(int.from_bytes(os.urandom(_OWN_BITS // 8), "big"))
        largest = Tag(own=(1 << _OWN_BITS) - 1, outer=self._outer)
        self._possible = self.hard == resource.RLIM_INFINITY or largest.value <= self.hard

    def new(self) -> Tag | None:
        """Return a tag for a new run; None when the hard RLIMIT_LOCKS is too low for a tag."""
        if not self._possible:
            return None
        number = next(self._numbers) % (1 << _OWN_BITS)
        while not number % (1 << _OUTER_BITS):  # outer number 0 means that there is no outer run
            number = next(self._numbers) % (1 << _OWN_BITS)
        return Tag(number, self._outer)


def apply_tag(pid: int, tag: Tag, hard: int | None = None) -> bool:
    """Set the run tag of a running process. `hard` is the process's hard RLIMIT_LOCKS, if known.

    Return False when the process has exited or this process may not change its limits.
    """
    try:
        if hard is None:
            hard = resource.prlimit(pid, processes.RLIMIT_LOCKS)[1]
        resource.prlimit(pid, processes.RLIMIT_LOCKS, (tag.value, hard))
    except (OSError, ValueError):
        return False
    return True


# Tag of the warden process. With this tag the warden is not part of the run that started it.
WARDEN_TAG: Final = Tag(own=0, outer=0)


def drop_tag() -> None:
    """Replace this process's run tag by the warden's tag, so that this process belongs to no run.

    Only the warden calls this function.
    """
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(processes.RLIMIT_LOCKS)[1]
        resource.setrlimit(processes.RLIMIT_LOCKS, (WARDEN_TAG.value, hard))
