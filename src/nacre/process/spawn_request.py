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


_KILL_WAIT: Final = 1.0  # maximum seconds to wait until killed processes have disappeared


class SpawnRequest(Struct, frozen=True):
    """Description of a child process to start; the child gets its own kernel session, see
    setsid(2)."""

    argv: list[bytes]  # arguments of the child; the first is the path of the program
    cwd: bytes
    env: dict[bytes, bytes] | None  # environment of the child; None: that of this process
    stdin: int
    output: int
    errors: int
    pass_fds: tuple[int, ...]  # descriptors that the child inherits besides stdin, stdout, stderr
    umask: int = -1  # umask of the child; -1: the umask of this process
    # resource limits that the child inherits, because this process sets them on itself during the
    # spawn
    limits: tuple[Rlimit, ...] = ()


class SpawnAttempt:
    """State of one attempt to start a child: the pids and descriptors to clean up after a failure.

    A caller that is interrupted calls `rollback` to kill the child and close the descriptors. Each
    pid and descriptor is recorded in the `SpawnAttempt` by the call that creates it, or immediately
    afterwards.
    """

    # The docstring of `engine.run.Run` says why the attributes of `SpawnAttempt` have class-level
    # defaults.
    tag: run_tag.Tag | None = None  # run tag of the child and of all its descendants
    # Run tag (a soft RLIMIT_LOCKS value) that this process sets on the child after the spawn; None:
    # no tag to set.
    late_tag: run_tag.Tag | None = None
    hard_limit = 0  # hard RLIMIT_LOCKS of the child at its start
    pidfd = -1

    def __init__(self) -> None:
        self.pids: list[int] = []  # pids of started children; exactly one after a successful start
        self.parent_fds: list[int] = []  # descriptors that this process keeps after the spawn
        # Descriptors for the child; this process closes its own copies after the spawn.
        self.child_fds: list[int] = []

    def on_started(self) -> None:
        """Tag the child and open its pidfd in its first microseconds, before bash can fork."""
        pid = self.pids[0]
        if self.late_tag is not None:
            run_tag.apply_tag(pid, self.late_tag, self.hard_limit)
        try:
            self.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            # The host (the program that imported nacre) reaps every child and has already reaped
            # the new child. An eventfd replaces the pidfd that could not be opened: it is readable
            # at once, as if the child had just exited, and has no exit status.
            self.pidfd = os.eventfd(1, os.EFD_CLOEXEC)

    def close_child_fds(self) -> None:
        """Close this process's copies of the descriptors that the child has inherited."""
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
        """Kill the child and close all descriptors of a failed start."""
        self.discard_child()
        self.close_child_fds()
        while self.parent_fds:
            os.close(self.parent_fds.pop())


def _kill_child(pid: int, tag: run_tag.Tag | None) -> None:
    """Kill and reap a child and kill its descendants, unless Popen has already reaped the child."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return  # the child is reaped, and its pid may belong to another process by now
    # The process group of the child is killed, too, because the child may already lead a group.
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(pid, signal.SIGKILL)
    if tag is not None:
        _kill_tagged(tag)
    with suppress(OSError):
        os.waitpid(pid, 0)


def _kill_tagged(tag: run_tag.Tag) -> None:
    """Kill all processes that have this run tag.

    On a busy machine, a shell may start a process that leaves the shell's process group before the
    spawn of the shell returns.
    """
    tagged, give_up = TaggedProcesses(tag), now() + _KILL_WAIT
    with suppress(OSError):  # no free descriptor for reading /proc
        while tagged.signal(signal.SIGKILL) and now() < give_up:
            time.sleep(0.001)
