"""What only a process that is nacre's own may do to itself, and what takes a system call that
Python has no name for."""

import ctypes
import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_MAX_SIGNALS: Final = 4096  # bytes to read at once from the pipe of signals


def become_subreaper() -> bool:
    """Have orphans of our commands come to us instead of to init. False where that is refused."""
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not refused


def wake_on_signals(watch: Callable[[int, Callable[[], None]], None]) -> None:
    """Have every signal end the wait of the event loop that `watch` adds a descriptor to. Call it
    in the main thread, once in a process.

    Python runs signal handlers in the main thread, between two bytecodes. A signal that arrives
    right before epoll_wait(2), or in another thread, does not interrupt that wait: its handler
    would run at the next event, which may never come. So Python writes a byte into a pipe for each
    signal, and the loop watches the pipe. It stays open until the process ends, because a handler
    in C writes to the number of its descriptor at any moment.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def drain() -> None:
        with suppress(BlockingIOError):  # a fork has read it
            os.read(reading, _MAX_SIGNALS)

    watch(reading, drain)


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
