"""A shell that waits for its script: it has its pipes, and is told the rest when that is known.

Lines in a pipe say that it is told something; the texts stand in files in memory, so that they can
be of any size: one for what it shall be, one for what it shall run. When whoever holds the
other end of the pipe goes, however that comes, the shell goes, too.
"""

import os
import select
import signal
from contextlib import suppress
from typing import Final
from weakref import WeakSet

import msgspec

from nacre.eventloop import now
from nacre.model.plan import Plan
from nacre.process import run_tag, spawn_posix
from nacre.process.spawn_request import SpawnAttempt
from nacre.process.spawner import Child, Spawner
from nacre.shell_state.bash_code import build_loader

IDLE_SECONDS: Final = 300  # seconds, after which it goes by itself
_USABLE_SECONDS: Final = IDLE_SECONDS - 30  # and for which we may still count on it


_all: "WeakSet[PrewarmedShell]" = WeakSet()


def _after_fork() -> None:
    """We are a fork of our host: those that wait, or are just being made, are the parent's."""
    for each in [*_all]:
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class PrewarmedShell:
    def __init__(
        self,
        plan: Plan,
        spawner: Spawner,
        *,
        base: object,
        session: str,
        draft_id: str,
        draft: str,
        background: bool = False,
    ) -> None:
        """Started as the plan says, but for its script. `base`, `session` and `draft_id` say which
        command may use it, `draft` is the file for its state at the end; `background`: no caller
        waits for it, and its start must not hold up other threads. Raises Refused."""
        self.state = ""  # what it was told to be
        self._control = self._script = self._state = -1
        self.base = base
        self.session = session
        self.draft_id = draft_id
        self.draft = draft
        _all.add(self)
        self.cwd = plan.command.cwd
        self._started_at = now()
        self.child: Child | None = None
        attempt = SpawnAttempt()
        reading, self._control = os.pipe2(os.O_CLOEXEC)
        try:
            self._script = os.memfd_create("nacre-script", os.MFD_CLOEXEC)
            self._state = os.memfd_create("nacre-state", os.MFD_CLOEXEC)
            passed = (reading, self._script, self._state)
            numbers = (3, 4, 5) if background else passed  # as the shell has them
            umask = (
                plan.command.caller_limits.umask
                if background and plan.command.caller_limits
                else None
            )
            script = build_loader(*numbers, IDLE_SECONDS if background else None, umask)
            command = msgspec.structs.replace(plan.command, script=script)
            waits = msgspec.structs.replace(plan, command=command)
            self.hard, own = spawner.hard_limit, spawner.new_tag()
            if background:
                self.child = spawner.spawn(waits, attempt, None, passed, spawn_posix.spawn_posix)
                if own is not None:
                    run_tag.apply_tag(self.child.pid, own, self.hard)
            else:
                self.child = spawner.spawn(waits, attempt, own, passed)
        except BaseException:
            attempt.rollback()
            self._close()
            raise
        finally:
            os.close(reading)

    @property
    def usable(self) -> bool:
        """Whether it still waits, and will for as long as it takes to tell it something."""
        if self.child is None or now() - self._started_at >= _USABLE_SECONDS:
            return False
        poll = select.poll()
        poll.register(self.child.pidfd, select.POLLIN)
        return not poll.poll(0)

    def restore(self, state: str, text: bytes) -> None:
        """Have it become, once, what this script makes of it. Raises OSError when it is gone."""
        self.state = state
        _write_memfd(self._state, text)
        os.write(self._control, b"+\n")

    def run(self, call: bytes, script: bytes, mark: run_tag.Tag | None) -> Child:
        """Have it run; from here on it is a command as any other. Raises OSError when it is gone,
        and has run nothing."""
        assert self.child is not None
        if mark is not None:
            run_tag.apply_tag(self.child.pid, mark, self.hard)
        _write_memfd(self._script, b"%b\0%b\0" % (call, script))
        os.write(self._control, b"\n")
        child, self.child = self.child, None
        self._close()
        return msgspec.structs.replace(child, tag=mark)

    def end(self) -> None:
        """Nobody wants it: it goes at once, and is waited for."""
        child, self.child = self.child, None
        self._close()
        if child is None:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        self._reap(child)

    def _reap(self, child: Child) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED)
        for fd in (child.pidfd, child.output, child.errors):
            if fd is not None:
                os.close(fd)

    def after_fork(self) -> None:
        """We are a fork of our host: it is the parent's."""
        child, self.child = self.child, None
        self._close()
        if child is not None:
            for fd in (child.pidfd, child.output, child.errors):
                if fd is not None:
                    os.close(fd)

    def _close(self) -> None:
        for fd in (self._control, self._script, self._state):
            if fd >= 0:
                os.close(fd)
        self._control = self._script = self._state = -1


def _write_memfd(fd: int, text: bytes) -> None:
    """From the beginning, and without moving the place that we share with its reader."""
    at, rest = 0, memoryview(text)
    while rest:
        done = os.pwrite(fd, rest, at)
        at, rest = at + done, rest[done:]
