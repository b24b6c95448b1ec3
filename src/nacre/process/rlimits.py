"""Resource limits and the umask of a child: read from the caller, set for the moment of a spawn.

A command that the warden starts has the limits of its caller. The spawning process sets soft limits
on itself during the spawn, so that the child inherits them (`temporary_rlimits`; only in processes
of nacre's own). It cannot do so with a lower hard limit, which could not be raised again, nor with
one that would hit the spawning process: prlimit(1) sets those and then becomes the shell.
"""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from nacre.model.plan import CallerLimits
from nacre.procfs.processes import RLIMIT_LOCKS

Rlimit = tuple[int, int, int]  # which resource, soft, hard

_rlimit_lock = threading.Lock()


@contextmanager
def temporary_rlimits(limits: tuple[Rlimit, ...]) -> Iterator[None]:
    """Raises ValueError or OSError for a limit that is not ours to have."""
    with _rlimit_lock:
        before = [(what, *resource.getrlimit(what)) for what, _, _ in limits]
        try:
            for what, soft, hard in limits:
                resource.setrlimit(what, (soft, hard))
            yield
        finally:
            for what, soft, hard in before:
                resource.setrlimit(what, (soft, hard))


PRLIMIT: Final = b"/usr/bin/prlimit"
# By number; the names are prlimit's.
_LIMIT_NAMES: Final = {
    0: b"cpu",
    1: b"fsize",
    2: b"data",
    3: b"stack",
    4: b"core",
    5: b"rss",
    6: b"nproc",
    7: b"nofile",
    8: b"memlock",
    9: b"as",
    11: b"sigpending",
    12: b"msgqueue",
    13: b"nice",
    14: b"rtprio",
    15: b"rttime",
}
LIMIT_NUMBERS: Final = range(max(_LIMIT_NAMES) + 1)
# Worn only for a moment, these could still end us: time that is over, memory that is there.
_NOT_TEMPORARY: Final = frozenset((0, 2, 9, 15))
assert RLIMIT_LOCKS not in _LIMIT_NAMES  # that one is for the tag


def read_caller_limits() -> CallerLimits:
    """Those of this process, for somebody else who starts its commands."""
    return CallerLimits(umask=read_umask(), limits=read_rlimits())


def read_rlimits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, LIMIT_NUMBERS))


def read_umask() -> int:
    """Asking the system means to change it for a moment; where other threads could see that, it is
    read from where it stands, which takes ten times as long."""
    if threading.active_count() == 1:
        mask = os.umask(0o077)
        os.umask(mask)
        return mask
    try:
        fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 256).split(b"Umask:", 1)[1].split(maxsplit=1)[0], 8)
        finally:
            os.close(fd)
    except (OSError, IndexError, ValueError):
        return 0o077


@lru_cache(maxsize=16)
def plan_rlimits(
    theirs: tuple[tuple[int, int], ...], ours: tuple[tuple[int, int], ...]
) -> tuple[tuple[Rlimit, ...], tuple[bytes, ...]]:
    """What we must wear for a child to have the caller's limits, and what prlimit must set. What
    is more than we may have ourselves cannot be had."""
    wear: list[Rlimit] = []
    words: list[bytes] = []
    for number, name in _LIMIT_NAMES.items():
        if number >= len(theirs) or number >= len(ours):
            continue
        hard = _min_limit(theirs[number][1], ours[number][1])
        soft = _min_limit(theirs[number][0], hard)
        if (soft, hard) == ours[number]:
            continue
        if hard == ours[number][1] and number not in _NOT_TEMPORARY:
            wear.append((number, soft, hard))
        else:
            words.append(b"--%s=%s:%s" % (name, _format_limit(soft), _format_limit(hard)))
    return tuple(wear), tuple(words)


def prlimit_raise_options() -> list[bytes]:
    """What has prlimit(1) start a process with all that we may have ourselves."""
    return [
        b"--%s=%s:%s" % (_LIMIT_NAMES[number], _format_limit(hard), _format_limit(hard))
        for number, (soft, hard) in enumerate(read_rlimits())
        if number in _LIMIT_NAMES and soft != hard
    ]


def has_prlimit() -> bool:
    return os.access(PRLIMIT, os.X_OK)


def _min_limit(one: int, other: int) -> int:
    if resource.RLIM_INFINITY in (one, other):
        return one if other == resource.RLIM_INFINITY else other
    return min(one, other)


def _format_limit(limit: int) -> bytes:
    return b"unlimited" if limit == resource.RLIM_INFINITY else b"%d" % limit
