"""Process start by the C library's `posix_spawn`, which does not block other Python threads.

`spawn_fork_exec` holds the GIL from the fork to the exec, for a millisecond on a busy machine.
nacre uses `spawn_fork_exec` to start a command for which a caller waits. A background thread starts
prewarmed shells (bash processes whose script is not known yet) with `posix_spawn`, which lets the
other threads run.
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
# size in bytes of a buffer for a struct of the C library's spawn functions; every struct is smaller
_STRUCT_SIZE: Final = 1024
_FIRST: Final = 3  # number that the first passed descriptor gets in the child
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
    """Return whether the C library has every function that `spawn_posix` needs."""
    return all(hasattr(_load_libc(), name) for name in _FUNCTIONS)


def spawn_posix(request: SpawnRequest, attempt: SpawnAttempt) -> None:
    """Start a process with the C library's `posix_spawn`. Raises OSError.

    In the child, the passed descriptors get the numbers 3, 4 and so on. The child keeps the umask
    of this process.
    """
    library, pid = _load_libc(), ctypes.c_int()
    actions, attributes = (
        ctypes.create_string_buffer(_STRUCT_SIZE),
        ctypes.create_string_buffer(_STRUCT_SIZE),
    )
    given = (request.stdin, request.output, request.errors, *request.pass_fds)
    # Duplicate each descriptor to a number above all numbers that descriptors will get in the
    # child.
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
        # The warden (nacre's daemon) sets the resource limits of a command's caller on itself
        # during the spawn, so that the child inherits them; the lock of `temporary_rlimits` keeps
        # two threads from doing so at the same time. Outside the warden, a spawn needs no lock:
        # other threads change only RLIMIT_LOCKS (the run tag) of the process, and nacre soon sets
        # the child's own run tag.
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
    """Return the set of signals that get their default action in the child.

    The C library reserves the signals 32 and 33 for itself; `posix_spawn` would make the child and
    all its descendants ignore them. To give the signals 32 and 33 their default action in the
    child, nacre sets their bits in the signal set, unless this process ignores them.
    """
    found = ctypes.create_string_buffer(_STRUCT_SIZE)
    library.sigemptyset(found)
    words = ctypes.cast(found, ctypes.POINTER(ctypes.c_ulong))
    ignored = processes.ignored_signals()
    for number in (*RESTORED_SIGNALS, *(each for each in _LIBC_SIGNALS if each not in ignored)):
        words[0] |= 1 << number - 1
    return found


def _build_argv(words: list[bytes]) -> Any:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)
