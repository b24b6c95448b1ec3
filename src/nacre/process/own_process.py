"""What only a process that is nacre's own may do to itself, and what takes a system call that
Python has no name for."""

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
_MAX_SIGNALS: Final = 4096  # bytes to read at once from the pipe of signals


def become_subreaper() -> bool:
    """Have orphans of our commands come to us instead of to init. False where that is refused."""
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not refused


def wake_on_signals(loop: EventLoop) -> None:
    """Have every signal end the wait of this event loop, if the calling thread is the main thread.

    Python runs signal handlers in the main thread, between two bytecodes. A signal that arrives
    right before epoll_wait(2), or in another thread, does not interrupt that wait: its handler
    would run at the next event, which may never come. So Python writes a byte into a pipe for each
    signal, and the loop watches the pipe.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    with suppress(OSError):  # no descriptor is left: a signal may be handled late
        pipe = _open_signal_pipe()
        loop.watch(pipe, partial(_drain, pipe))


@cache
def _open_signal_pipe() -> int:
    """The read end. The pipe stays open until the process ends, because the C handler may write to
    the number of its descriptor at any moment."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


os.register_at_fork(after_in_child=_open_signal_pipe.cache_clear)  # the pipe is the parent's


def _drain(pipe: int) -> None:
    with suppress(BlockingIOError):  # another loop of the main thread has read it
        os.read(pipe, _MAX_SIGNALS)


def make_undumpable() -> bool:
    """Have `/proc/PID/fd`, `mem` and `environ` of this process be nobody's business but root's.
    What we start is seen as ever. False where that is refused."""
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return not refused


def trim_memory() -> None:
    """What was freed and is kept for later, where the C library knows how to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def scrub_environ(names: Collection[bytes]) -> bool:
    """Have `/proc/PID/environ` of this process no longer show these: our commands can read it.
    What the process itself knows of them stays. False where the system does not allow it."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[47]), int(fields[48])  # env_start, env_end
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
    """Which Landlock the kernel offers; 0 or less: none."""
    asked: int = ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return asked
