"""Request to start a process, and the state of the attempt to start it."""

import os
import signal
import time
from contextlib import suppress
from typing import Final

from msgspec import Struct

from nacre.eventloop import now
from nacre.process import run_tag
from nacre.process.process_tree import TaggedProcesses
from nacre.process.rlimits import Rlimit

# signals that Python ignores and that get their default action in a child
RESTORED_SIGNALS: Final = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
)


_KILL_WAIT: Final = 1.0  # seconds to wait until killed processes have disappeared


class SpawnRequest(Struct, frozen=True):
    """Description of a process to start in a new session."""

    argv: list[bytes]  # the first argument is the path of the program
    cwd: bytes
    env: dict[bytes, bytes] | None  # variables of the child; None: those of this process
    stdin: int
    output: int
    errors: int
    pass_fds: tuple[int, ...]  # further descriptors that the child inherits
    umask: int = -1  # umask of the child; -1: the umask of this process
    # limits that the child inherits; this process sets them on itself during the spawn
    limits: tuple[Rlimit, ...] = ()


class SpawnAttempt:
    """State of one attempt to start a child: the pids and descriptors to clean up after a failure.

    A caller that is interrupted calls `rollback`. Each pid and descriptor is recorded in this
    object by the same call that creates it, or immediately after that call.
    """

    # Why these attributes have class-level defaults: see the docstring of `engine.run.Run`.
    tag: run_tag.Tag | None = None  # run tag of the child and of all its descendants
    late_tag: run_tag.Tag | None = None  # run tag to set after the spawn
    hard_limit = 0  # hard RLIMIT_LOCKS of the child at its start
    pidfd = -1

    def __init__(self) -> None:
        self.pids: list[int] = []  # exactly one pid after a successful start
        self.parent_fds: list[int] = []  # descriptors that this process keeps
        self.child_fds: list[int] = []  # descriptors that only the child keeps

    def on_started(self) -> None:
        """Tag the child and open its pidfd in its first microseconds, before bash can fork."""
        pid = self.pids[0]
        if self.late_tag is not None:
            run_tag.apply_tag(pid, self.late_tag, self.hard_limit)
        try:
            self.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            # A host that reaps every child has already reaped this one. An eventfd replaces the
            # pidfd: the eventfd is readable at once and has no exit status either.
            self.pidfd = os.eventfd(1, os.EFD_CLOEXEC)

    def close_child_fds(self) -> None:
        """Close the descriptors that the child has inherited."""
        while self.child_fds:
            os.close(self.child_fds.pop())

    def discard_child(self) -> None:
        """Kill and forget the child of a failed start, so that the start can be retried."""
        while self.pids:
            _kill_child(self.pids[-1], self.tag)
            self.pids.pop()
        if self.pidfd >= 0:
            fd, self.pidfd = self.pidfd, -1
            os.close(fd)

    def rollback(self) -> None:
        """Kill the child and close all descriptors after a failed start."""
        self.discard_child()
        self.close_child_fds()
        while self.parent_fds:
            os.close(self.parent_fds.pop())


def _kill_child(pid: int, tag: run_tag.Tag | None) -> None:
    """Kill and reap a child and kill its descendants, unless Popen has already reaped the child."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return  # the pid may belong to another process by now
    for kill in (os.killpg, os.kill):  # the child may already lead a process group
        with suppress(OSError):
            kill(pid, signal.SIGKILL)
    if tag is not None:
        _kill_tagged(tag)
    with suppress(OSError):
        os.waitpid(pid, 0)


def _kill_tagged(tag: run_tag.Tag) -> None:
    """Kill the processes with this run tag.

    On a busy machine, a shell may start a process before the spawn of the shell returns. That
    process may already have left the shell's process group.
    """
    tagged, give_up = TaggedProcesses(tag), now() + _KILL_WAIT
    with suppress(OSError):  # no free descriptor for reading /proc
        while tagged.signal(signal.SIGKILL) and now() < give_up:
            time.sleep(0.001)
