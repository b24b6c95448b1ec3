"""Starting a process without being in anybody's way: the interpreter goes on meanwhile.

`launch` holds the interpreter's lock from the fork to the exec, a millisecond on a busy machine.
For a command that somebody waits for this is best; for one that nobody waits for yet it is not. The
C library's own spawn, called from a thread of ours, lets the others run.
"""

import ctypes
import fcntl
import os
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Final

from nacre import proc
from nacre.process.birth import RESTORED, Birth, Order
from nacre.process.worn import worn

_SETSIGDEF: Final = 0x04
_SETSID: Final = 0x80
_ROOM: Final = 1024  # bytes, more than any of the library's structs has
_FIRST: Final = 3  # the descriptor that the first one passed becomes
_OF_THE_LIBRARY: Final = (32, 33)
_NEEDED: Final = (
    "posix_spawn",
    "posix_spawn_file_actions_addchdir_np",
    "posix_spawn_file_actions_addclosefrom_np",
)


@lru_cache(maxsize=1)
def _library() -> Any:
    return ctypes.CDLL(None)


@lru_cache(maxsize=1)
def possible() -> bool:
    """Whether the C library can do all of it."""
    return all(hasattr(_library(), name) for name in _NEEDED)


def start(order: Order, birth: Birth) -> None:
    """As `launch` does, but that what is passed becomes 3, 4, ... Raises OSError."""
    library, pid = _library(), ctypes.c_int()
    actions, attributes = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)
    given = (order.stdin, order.output, order.errors, *order.passed)
    # Out of the way of the numbers that they become.
    lent = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 2 * len(given)) for fd in given]
    library.posix_spawn_file_actions_init(actions)
    library.posix_spawnattr_init(attributes)
    try:
        for number, fd in enumerate(lent):
            library.posix_spawn_file_actions_adddup2(actions, fd, number)
        library.posix_spawn_file_actions_addclosefrom_np(actions, len(lent))
        library.posix_spawn_file_actions_addchdir_np(actions, order.cwd)
        library.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSID | _SETSIGDEF))
        library.posix_spawnattr_setsigdefault(attributes, _signals(library))
        env = os.environb if order.env is None else order.env
        variables = [b"%b=%b" % each for each in env.items()]
        # Where callers have limits of their own, it must not have somebody else's by chance. A tag
        # that our process wears at this moment is soon replaced.
        with worn(order.limits) if order.umask >= 0 else nullcontext():
            problem = library.posix_spawn(
                ctypes.byref(pid),
                order.words[0],
                actions,
                attributes,
                _strings(order.words),
                _strings(variables),
            )
    finally:
        library.posix_spawn_file_actions_destroy(actions)
        library.posix_spawnattr_destroy(attributes)
        for fd in lent:
            os.close(fd)
    if problem:
        raise OSError(problem, os.strerror(problem))
    birth.pids.append(pid.value)
    birth.happened()


def _signals(library: Any) -> Any:
    """A set of them. The two that the library keeps for itself it would have ignored in a child,
    and by all that this starts; the way to have them as they were is to know how a set is made."""
    found = ctypes.create_string_buffer(_ROOM)
    library.sigemptyset(found)
    words = ctypes.cast(found, ctypes.POINTER(ctypes.c_ulong))
    ignored = proc.ignored_signals()
    for number in (*RESTORED, *(each for each in _OF_THE_LIBRARY if each not in ignored)):
        words[0] |= 1 << number - 1
    return found


def _strings(words: list[bytes]) -> Any:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)
