"""A process that shall be started, and its first microseconds."""

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

RESTORED_SIGNALS: Final = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
)  # which Python ignores, and a child does not


_KILL_WAIT: Final = 1.0  # seconds that what is killed may take to be gone


class SpawnRequest(Struct, frozen=True):
    """What shall be started, in a session of its own."""

    argv: list[bytes]  # the first is the program
    cwd: bytes
    env: dict[bytes, bytes] | None  # None: what this process has
    stdin: int
    output: int
    errors: int
    pass_fds: tuple[int, ...]  # what else the child keeps open
    umask: int = -1  # -1: ours
    limits: tuple[Rlimit, ...] = ()  # that it is born with: worn by us for a moment


class SpawnAttempt:
    """A child on its way into the world, and all that must not be lost or left if it fails.

    Whoever is interrupted undoes it: a pid or a descriptor is written down here by the very call
    that makes it, or before anything can come between.
    """

    # Class-level defaults: see `engine.run.Run`.
    tag: run_tag.Tag | None = None  # of all that the child starts
    late_tag: run_tag.Tag | None = None  # a tag that the child is not born with
    hard_limit = 0  # the hard limit that it is born with
    pidfd = -1

    def __init__(self) -> None:
        self.pids: list[int] = []  # one, when all goes well
        self.parent_fds: list[int] = []  # descriptors that stay with us
        self.child_fds: list[int] = []  # and those that only the child keeps

    def on_started(self) -> None:
        """See to the child in its first microseconds, before bash can fork."""
        pid = self.pids[0]
        if self.late_tag is not None:
            run_tag.apply_tag(pid, self.late_tag, self.hard_limit)
        try:
            self.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            # A host that collects every child was faster. Something that is readable at once, and
            # tells as little about the end, stands in for the pidfd.
            self.pidfd = os.eventfd(1, os.EFD_CLOEXEC)

    def close_child_fds(self) -> None:
        """The child has its descriptors."""
        while self.child_fds:
            os.close(self.child_fds.pop())

    def discard_child(self) -> None:
        """No child has come of it; another one may."""
        while self.pids:
            _kill_child(self.pids[-1], self.tag)
            self.pids.pop()
        if self.pidfd >= 0:
            fd, self.pidfd = self.pidfd, -1
            os.close(fd)

    def rollback(self) -> None:
        """No child of ours may live on unknown, and nothing stay open for it."""
        self.discard_child()
        self.close_child_fds()
        while self.parent_fds:
            os.close(self.parent_fds.pop())


def _kill_child(pid: int, tag: run_tag.Tag | None) -> None:
    """Kill a child and what it has started, and collect it, unless Popen has done so."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return  # the number may be somebody else's by now
    for kill in (os.killpg, os.kill):  # it may have a group already
        with suppress(OSError):
            kill(pid, signal.SIGKILL)
    if tag is not None:
        _kill_tagged(tag)
    with suppress(OSError):
        os.waitpid(pid, 0)


def _kill_tagged(tag: run_tag.Tag) -> None:
    """On a busy machine a shell has started something, which may have left its group, before the
    call returns that started the shell."""
    tagged, give_up = TaggedProcesses(tag), now() + _KILL_WAIT
    with suppress(OSError):  # no descriptor to look with
        while tagged.signal(signal.SIGKILL) and now() < give_up:
            time.sleep(0.001)
