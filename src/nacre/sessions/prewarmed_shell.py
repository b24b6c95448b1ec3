"""Prewarmed shell: a bash that waits for its script.

The shell starts with its output pipes and a control pipe. A line on the control pipe tells the
shell that a text is ready. The texts are in memory files, so that a text can have any size. One
memory file holds the script that restores a session's state, the other one the command to run.
When the process at the other end of the control pipe exits for any reason, the shell reads EOF and
exits, too.
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

IDLE_SECONDS: Final = 300  # seconds after which an unused prewarmed shell exits
_USABLE_SECONDS: Final = IDLE_SECONDS - 30  # maximum age in seconds for receiving a script


_all: "WeakSet[PrewarmedShell]" = WeakSet()


def _after_fork() -> None:
    """Drop all prewarmed shells after fork(2), also shells that are still being started. The shells
    belong to the parent process."""
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
        """Start the plan's shell without the plan's script. `base`, `session` and `draft_id` define
        which commands may use the shell. `draft` is the file for the shell's state at its exit.
        `background` means that no caller waits for the shell. A background start must not block
        other threads. Raises Refused."""
        self.state = ""  # name of the state that the shell restores
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
            numbers = (3, 4, 5) if background else passed  # descriptor numbers in the shell
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
        """Return whether the shell still waits, with enough time left to send it a script."""
        if self.child is None or now() - self._started_at >= _USABLE_SECONDS:
            return False
        poll = select.poll()
        poll.register(self.child.pidfd, select.POLLIN)
        return not poll.poll(0)

    def restore(self, state: str, text: bytes) -> None:
        """Tell the shell to restore a session's state; possible only once. `state` is the state's
        name, `text` the script that restores the state. Raises OSError when the shell has exited.
        """
        self.state = state
        _write_memfd(self._state, text)
        os.write(self._control, b"+\n")

    def run(self, call: bytes, script: bytes, mark: run_tag.Tag | None) -> Child:
        """Tell the shell to run a script. `call` is bash code that belongs to this call and runs
        before the script. After this method, the shell is an ordinary child process of a run.
        Raises OSError when the shell has exited without running the script."""
        assert self.child is not None
        if mark is not None:
            run_tag.apply_tag(self.child.pid, mark, self.hard)
        _write_memfd(self._script, b"%b\0%b\0" % (call, script))
        os.write(self._control, b"\n")
        child, self.child = self.child, None
        self._close()
        return msgspec.structs.replace(child, tag=mark)

    def end(self) -> None:
        """Kill and reap an unused shell."""
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
        """Close the descriptors after fork(2): the shell belongs to the parent process."""
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
    """Write a text to a memory file from offset 0. The write must not move the file offset, because
    the reading shell shares that offset."""
    at, rest = 0, memoryview(text)
    while rest:
        done = os.pwrite(fd, rest, at)
        at, rest = at + done, rest[done:]
