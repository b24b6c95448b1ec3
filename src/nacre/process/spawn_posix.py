"""Starting a process without being in anybody's way: the interpreter goes on meanwhile.

`spawn_fork_exec` holds the interpreter's lock from the fork to the exec, a millisecond on a busy
machine. For a command that a caller waits for this is best; for a prewarmed shell it is not. The C
library's own spawn, called from a background thread, lets the other threads run.
"""

import ctypes
import fcntl
import os
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Final

from nacre.process.rlimits import temporary_rlimits
from nacre.process.spawn_request import RESTORED_SIGNALS, SpawnAttempt, SpawnRequest
from nacre.procfs import processes

_SETSIGDEF: Final = 0x04
_SETSID: Final = 0x80
_STRUCT_SIZE: Final = 1024  # bytes, more than any of the library's structs has
_FIRST: Final = 3  # the descriptor that the first one passed becomes
_LIBC_SIGNALS: Final = (32, 33)
_FUNCTIONS: Final = (
    "posix_spawn",
    "posix_spawn_file_actions_addchdir_np",
    "posix_spawn_file_actions_addclosefrom_np",
)


@lru_cache(maxsize=1)
def _load_libc() -> Any:
    return ctypes.CDLL(None)


@lru_cache(maxsize=1)
def is_available() -> bool:
    """Whether the C library can do all of it."""
    return all(hasattr(_load_libc(), name) for name in _FUNCTIONS)


def spawn_posix(request: SpawnRequest, attempt: SpawnAttempt) -> None:
    """As `spawn_fork_exec` does, but that what is passed becomes 3, 4, ... Raises OSError."""
    library, pid = _load_libc(), ctypes.c_int()
    actions, attributes = (
        ctypes.create_string_buffer(_STRUCT_SIZE),
        ctypes.create_string_buffer(_STRUCT_SIZE),
    )
    given = (request.stdin, request.output, request.errors, *request.pass_fds)
    # Out of the way of the numbers that they become.
    lent = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 2 * len(given)) for fd in given]
    library.posix_spawn_file_actions_init(actions)
    library.posix_spawnattr_init(attributes)
    try:
        for number, fd in enumerate(lent):
            library.posix_spawn_file_actions_adddup2(actions, fd, number)
        library.posix_spawn_file_actions_addclosefrom_np(actions, len(lent))
        library.posix_spawn_file_actions_addchdir_np(actions, request.cwd)
        library.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSID | _SETSIGDEF))
        library.posix_spawnattr_setsigdefault(attributes, _build_signal_set(library))
        env = os.environb if request.env is None else request.env
        variables = [b"%b=%b" % each for each in env.items()]
        # Where callers have limits of their own, it must not have somebody else's by chance. A tag
        # that our process wears at this moment is soon replaced.
        with temporary_rlimits(request.limits) if request.umask >= 0 else nullcontext():
            problem = library.posix_spawn(
                ctypes.byref(pid),
                request.argv[0],
                actions,
                attributes,
                _build_argv(request.argv),
                _build_argv(variables),
            )
    finally:
        library.posix_spawn_file_actions_destroy(actions)
        library.posix_spawnattr_destroy(attributes)
        for fd in lent:
            os.close(fd)
    if problem:
        raise OSError(problem, os.strerror(problem))
    attempt.pids.append(pid.value)
    attempt.on_started()


def _build_signal_set(library: Any) -> Any:
    """A set of them. The two that the library keeps for itself it would have ignored in a child,
    and by all that this starts; the way to have them as they were is to know how a set is made."""
    found = ctypes.create_string_buffer(_STRUCT_SIZE)
    library.sigemptyset(found)
    words = ctypes.cast(found, ctypes.POINTER(ctypes.c_ulong))
    ignored = processes.ignored_signals()
    for number in (*RESTORED_SIGNALS, *(each for each in _LIBC_SIGNALS if each not in ignored)):
        words[0] |= 1 << number - 1
    return found


def _build_argv(words: list[bytes]) -> Any:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)
