"""Process-wide changes that only nacre's own processes may make to themselves, and system calls for
which Python has no function."""

import ctypes
import os
import signal
import threading
from collections.abc import Collection
from contextlib import suppress
from functools import cache, partial
from typing import Final

from nacre.eventloop import EventLoop

_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_MAX_SIGNALS: Final = 4096  # maximum number of bytes in one read from the signal pipe


def become_subreaper() -> bool:
    """Make this process a subreaper, so that the kernel reparents orphans of its commands to it.

    Without a subreaper, orphans become children of init. Return False when the kernel refuses to
    make this process a subreaper.
    """
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not refused


def wake_on_signals(loop: EventLoop) -> None:
    """Make every signal wake this event loop, if the calling thread is the main thread.

    Python runs signal handlers in the main thread, between two bytecodes. A signal that arrives
    right before epoll_wait(2), or in another thread, does not interrupt the wait, so its handler
    would run only at the next event, which may never come. To wake the event loop, Python writes a
    byte into a pipe for each signal, and the event loop watches the pipe.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    with suppress(OSError):  # no free descriptor for the signal pipe: signals do not wake the loop
        pipe = _open_signal_pipe()
        loop.watch(pipe, partial(_drain, pipe))


@cache
def _open_signal_pipe() -> int:
    """Return the read end of the pipe into which Python writes a byte for each signal.

    The signal pipe stays open until the process ends, because Python's signal handler in C may
    write to the pipe's descriptor at any moment.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


# After fork(2), the signal pipe still belongs to the parent process, so the child needs a new pipe.
os.register_at_fork(after_in_child=_open_signal_pipe.cache_clear)


def _drain(pipe: int) -> None:
    with suppress(BlockingIOError):  # another event loop has emptied the signal pipe
        os.read(pipe, _MAX_SIGNALS)


def make_undumpable() -> bool:
    """Restrict access to `/proc/PID/fd`, `mem` and `environ` of this process to root.

    Access to a child process's files in /proc is not restricted. Return False when the kernel
    refuses to restrict access to this process's files in /proc.
    """
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return not refused


def trim_memory() -> None:
    """Return freed heap memory to the kernel, if the C library has `malloc_trim`."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def scrub_environ(names: Collection[bytes]) -> bool:
    """Erase the variables `names` from `/proc/PID/environ` of this process, because its commands
    can read that file.

    `os.environ` keeps the variables that are erased from `/proc/PID/environ`. Return False when
    this process may not write to its own `/proc/self/mem`.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[47]), int(fields[48])  # fields env_start and env_end of proc(5)
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    except (OSError, IndexError, ValueError):
        return False
    try:
        at = start
        for entry in os.pread(memory, end - start, start).split(b"\0"):
            if entry.partition(b"=")[0] in names:
                os.pwrite(memory, bytes(len(entry)), at)
            at += len(entry) + 1
    except OSError:
        return False
    finally:
        os.close(memory)
    return True


_LANDLOCK_CREATE_RULESET: Final = 444


def landlock_version() -> int:
    """Return the Landlock version of the kernel; 0 or less means that there is no Landlock."""
    asked: int = ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return asked
