"""What a command has from its caller besides directory and variables: the umask and the limits.

Where somebody else starts the command, these travel with it. Soft limits can be worn by whoever
spawns; a lower hard one cannot (there is no way back), nor one that would hit the spawner itself:
for those prlimit(1) sets them and becomes the shell.
"""

import os
import resource
import threading
from functools import lru_cache
from typing import Final

from nacre.plan import Terms
from nacre.proc import RLIMIT_LOCKS
from nacre.process.worn import Worn

PRLIMIT: Final = b"/usr/bin/prlimit"
# By number; the names are prlimit's.
_NAMES: Final = {
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
NUMBERS: Final = range(max(_NAMES) + 1)
# Worn only for a moment, these could still end us: time that is over, memory that is there.
_DANGEROUS: Final = frozenset((0, 2, 9, 15))
assert RLIMIT_LOCKS not in _NAMES  # that one is for the tag


def mine() -> Terms:
    """Those of this process, for somebody else who starts its commands."""
    return Terms(umask=umask(), limits=limits())


def limits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, NUMBERS))


def umask() -> int:
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
def needed(
    theirs: tuple[tuple[int, int], ...], ours: tuple[tuple[int, int], ...]
) -> tuple[tuple[Worn, ...], tuple[bytes, ...]]:
    """What we must wear for a child to have the caller's limits, and what prlimit must set. What
    is more than we may have ourselves cannot be had."""
    wear: list[Worn] = []
    words: list[bytes] = []
    for number, name in _NAMES.items():
        if number >= len(theirs) or number >= len(ours):
            continue
        hard = _lower(theirs[number][1], ours[number][1])
        soft = _lower(theirs[number][0], hard)
        if (soft, hard) == ours[number]:
            continue
        if hard == ours[number][1] and number not in _DANGEROUS:
            wear.append((number, soft, hard))
        else:
            words.append(b"--%s=%s:%s" % (name, _shown(soft), _shown(hard)))
    return tuple(wear), tuple(words)


def raised() -> list[bytes]:
    """What has prlimit(1) start a process with all that we may have ourselves."""
    return [
        b"--%s=%s:%s" % (_NAMES[number], _shown(hard), _shown(hard))
        for number, (soft, hard) in enumerate(limits())
        if number in _NAMES and soft != hard
    ]


def can_be_set() -> bool:
    return os.access(PRLIMIT, os.X_OK)


def _lower(one: int, other: int) -> int:
    if resource.RLIM_INFINITY in (one, other):
        return one if other == resource.RLIM_INFINITY else other
    return min(one, other)


def _shown(limit: int) -> bytes:
    return b"unlimited" if limit == resource.RLIM_INFINITY else b"%d" % limit
