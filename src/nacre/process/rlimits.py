"""Resource limits and umask of a child: read from the caller, applied at the spawn.

A command that the warden starts gets the limits of its caller. The spawning process sets soft
limits on itself during the spawn, so that the child inherits the limits (`temporary_rlimits`). Only
nacre's own processes set limits on themselves. A lower hard limit cannot be temporary, because the
spawning process could not raise its hard limit again. A limit that would hit the spawning process
itself cannot be temporary either. prlimit(1) sets the limits that cannot be temporary, and then
execs the shell.
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

Rlimit = tuple[int, int, int]  # resource number, soft limit, hard limit

_rlimit_lock = threading.Lock()


@contextmanager
def temporary_rlimits(limits: tuple[Rlimit, ...]) -> Iterator[None]:
    """Set these limits on this process for the duration of a `with` block.

    Raises ValueError or OSError for a limit that this process may not set.
    """
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
# resource number of each limit, and the limit's option name in prlimit(1)
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
# Limits of CPU time and memory. Even a short-lived limit could kill the spawning process if that
# process has already used more time or memory than the limit allows.
_NOT_TEMPORARY: Final = frozenset((0, 2, 9, 15))
assert RLIMIT_LOCKS not in _LIMIT_NAMES  # RLIMIT_LOCKS is reserved for the run tag


def read_caller_limits() -> CallerLimits:
    """Return the umask and limits of this process, for a warden that starts its commands."""
    return CallerLimits(umask=read_umask(), limits=read_rlimits())


def read_rlimits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, LIMIT_NUMBERS))


def read_umask() -> int:
    """Return the umask of this process.

    umask(2) returns the umask only by changing it for a moment. If other threads could see that
    change, the umask is read from `/proc/self/status`, which takes ten times as long.
    """
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
    """Return how to start a child with the caller's limits (`theirs`).

    The first part of the result holds the limits that this process sets on itself during the spawn.
    The second part of the result holds options for prlimit(1). `ours` holds the limits of this
    process. A caller's limit above the hard limit of this process is reduced to that hard limit.
    """
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
    """Return prlimit(1) options that raise every soft limit to the hard limit of this process."""
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
