"""Resource limits and umask of a child process: read from the caller, applied at the spawn.

A command that the warden (nacre's daemon) starts gets the resource limits of its caller. The
spawning process sets soft limits on itself during the spawn, so that the child inherits the limits
(`temporary_rlimits`). Only nacre's own processes, never a host process, set limits on themselves. A
lower hard limit cannot be set temporarily, because the spawning process could not raise its hard
limit again. A limit of CPU time or memory cannot be set temporarily, because it could kill the
spawning process. Limits that cannot be set temporarily are set by the program prlimit(1), which
then execs the shell.
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

Rlimit = tuple[int, int, int]  # a resource limit: its number, its soft value, its hard value

_rlimit_lock = threading.Lock()


@contextmanager
def temporary_rlimits(limits: tuple[Rlimit, ...]) -> Iterator[None]:
    """Set these resource limits on this process for the duration of a `with` block.

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
# maps the number of each resource limit to the limit's option name in prlimit(1)
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
# Limits of CPU time and memory: the spawning process must not set them on itself even for a moment,
# because it could be killed if it has already used more time or memory.
_NOT_TEMPORARY: Final = frozenset((0, 2, 9, 15))
assert RLIMIT_LOCKS not in _LIMIT_NAMES  # RLIMIT_LOCKS marks the processes of a run


def read_caller_limits() -> CallerLimits:
    """Return the umask and resource limits of this process, which the warden applies to this
    process's commands."""
    return CallerLimits(umask=read_umask(), limits=read_rlimits())


def read_rlimits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, LIMIT_NUMBERS))


def read_umask() -> int:
    """Return the umask of this process.

    The system call umask(2) returns the umask only by changing it for a moment. In a process with
    several threads, the umask is read from `/proc/self/status`, which takes ten times as long as
    umask(2), but does not change the umask.
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
    """Split the resource limits of a caller (`theirs`) into two groups for the spawn of a child.

    Return two tuples: the resource limits that this process sets on itself during the spawn, and
    options for prlimit(1), which sets the other limits. `ours` holds the resource limits of this
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
