"""The run tag: a number that everything a command starts inherits.

It is written into the soft RLIMIT_LOCKS, which Linux has not used for twenty years: it survives
fork, exec, `setsid`, double forks and `env -i`, costs nothing and injects no variable. A tag
also remembers the run that our own process belongs to, so that nacre inside nacre stays
part of the outer run.
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
_MAGIC: Final = (
    0x4E  # says "this is one of ours"; the largest tag still fits a signed 64-bit number
)


class Tag(Struct, frozen=True):
    own: int
    outer: int

    @property
    def value(self) -> int:
        return (_MAGIC << _OWN_BITS + _OUTER_BITS) | (self.outer << _OWN_BITS) | self.own

    @property
    def as_outer(self) -> int:
        """How a run inside this one remembers it."""
        return self.own % (1 << _OUTER_BITS)

    def includes(self, soft_locks: int | None) -> bool:
        """Whether a process with this soft limit was started by our run, or by a run inside it."""
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
    """A tag for a new run; None where the hard limit leaves no room for one."""
    return TagFactory().new()


class TagFactory:
    """Makes tags: numbers in a row, from a random one on. The limits of our process, and the run
    that it belongs to, are looked at once."""

    def __init__(self) -> None:
        soft, self.hard = resource.getrlimit(processes.RLIMIT_LOCKS)
        ours = parse_tag(soft)
        self._outer = ours.as_outer if ours else 0
        self._numbers = itertools.count(int.from_bytes(os.urandom(_OWN_BITS // 8), "big"))
        largest = Tag(own=(1 << _OWN_BITS) - 1, outer=self._outer)
        self._possible = self.hard == resource.RLIM_INFINITY or largest.value <= self.hard

    def new(self) -> Tag | None:
        """A tag for a new run; None where the hard limit leaves no room for one."""
        if not self._possible:
            return None
        number = next(self._numbers) % (1 << _OWN_BITS)
        while not number % (1 << _OUTER_BITS):  # that would be the outer number of nobody
            number = next(self._numbers) % (1 << _OWN_BITS)
        return Tag(number, self._outer)


def apply_tag(pid: int, tag: Tag, hard: int | None = None) -> bool:
    """Tag a process that runs already; `hard` is its hard limit, if that is known. False when it
    is gone or not ours to change."""
    try:
        if hard is None:
            hard = resource.prlimit(pid, processes.RLIMIT_LOCKS)[1]
        resource.prlimit(pid, processes.RLIMIT_LOCKS, (tag.value, hard))
    except (OSError, ValueError):
        return False
    return True


# What the warden itself wears, so that nobody takes it for a part of the run that started it.
WARDEN_TAG: Final = Tag(own=0, outer=0)


def drop_tag() -> None:
    """Be no part of any run. Only for the warden."""
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(processes.RLIMIT_LOCKS)[1]
        resource.setrlimit(processes.RLIMIT_LOCKS, (WARDEN_TAG.value, hard))
