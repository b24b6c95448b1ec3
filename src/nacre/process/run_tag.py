"""Run tags: numbers that mark every process of a run.

A run tag is the soft RLIMIT_LOCKS value of a process, a limit that Linux has not used for twenty
years. A process inherits its run tag through fork, exec, `setsid`, double forks and `env -i`. A run
tag costs nothing and adds no environment variable. If nacre runs inside a run of another nacre
process (the outer run), each run tag that it assigns also contains the number of the outer run, so
that the tagged processes still belong to the outer run.
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
# Top byte of every run tag, small enough that the largest tag fits a signed 64-bit number.
_MAGIC: Final = 0x4E


class Tag(Struct, frozen=True):
    own: int
    outer: int

    @property
    def value(self) -> int:
        return (_MAGIC << _OWN_BITS + _OUTER_BITS) | (self.outer << _OWN_BITS) | self.own

    @property
    def as_outer(self) -> int:
        """Number by which the tag of a nested run (started inside this run) refers to this run."""
        return self.own % (1 << _OUTER_BITS)

    def includes(self, soft_locks: int | None) -> bool:
        """Return whether a process with this soft RLIMIT_LOCKS belongs to this run.

        The processes of another run that a command of this run starts with nacre belong to this
        run, too, unless the warden (nacre's daemon) executes that other run.
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

    A `TagFactory` reads this process's own RLIMIT_LOCKS (which holds the number of an outer run, if
    nacre runs inside one) only once.
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
        # Skip a number whose lower 24 bits are 0, because a tag with 0 in its field `outer` means
        # that there is no outer run.
        while not number % (1 << _OUTER_BITS):
            number = next(self._numbers) % (1 << _OWN_BITS)
        return Tag(number, self._outer)


def apply_tag(pid: int, tag: Tag, hard: int | None = None) -> bool:
    """Set the run tag of a running process. `hard` is the process's hard RLIMIT_LOCKS, if known.

    Return False when the process `pid` has exited, or when nacre may not change the limits of the
    process `pid`.
    """
    try:
        if hard is None:
            hard = resource.prlimit(pid, processes.RLIMIT_LOCKS)[1]
        resource.prlimit(pid, processes.RLIMIT_LOCKS, (tag.value, hard))
    except (OSError, ValueError):
        return False
    return True


# Run tag of the warden (nacre's daemon), which keeps the warden out of the run that started it.
WARDEN_TAG: Final = Tag(own=0, outer=0)


def drop_tag() -> None:
    """Replace this process's run tag by the warden's tag, so that this process belongs to no run.

    Only the warden (nacre's daemon) calls `drop_tag`.
    """
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(processes.RLIMIT_LOCKS)[1]
        resource.setrlimit(processes.RLIMIT_LOCKS, (WARDEN_TAG.value, hard))
