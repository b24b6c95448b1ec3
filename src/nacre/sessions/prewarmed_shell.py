"""Prewarmed shell: a bash process that was started early and waits for the script of a command.

A prewarmed shell is started with its output pipes and a control pipe. nacre writes each script for
the shell to a memory file (memfd), which can hold a script of any size, and then tells the shell
with a line on the control pipe that the script is ready. One memory file holds the script that
restores a session's state, and a second one holds the command to run. When the process that writes
to the control pipe exits for any reason, the prewarmed shell reads EOF and exits, too.
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
from nacre.procfs import processes
from nacre.shell_state.bash_code import build_loader

IDLE_SECONDS: Final = 300  # seconds after which an unused prewarmed shell exits
# maximum age in seconds at which a prewarmed shell still gets a script
_USABLE_SECONDS: Final = IDLE_SECONDS - 30


_all: "WeakSet[PrewarmedShell]" = WeakSet()


def _after_fork() -> None:
    """Drop all prewarmed shells in a forked child, also shells that are still being started,
    because they belong to the parent process."""
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
        """Start a shell with the directory and environment that `plan` describes, and let the shell
        wait for a script. A command may use the prewarmed shell only if the command needs the shell
        properties in `base` and belongs to the session `session`. When the shell exits, its state
        is saved to a draft: a file with the id `draft_id` and the path `draft`. If `background` is
        True, no caller waits for the shell, and nacre starts it with `posix_spawn`, which does not
        block other threads. Raises Refused."""
        self.state = ""  # name of the session state that the shell restores; empty: none
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
            # numbers that the descriptors in `passed` have inside the shell
            numbers = (3, 4, 5) if background else passed
            umask = (
                plan.command.caller_limits.umask
                if background and plan.command.caller_limits
                else None
            )
            script = build_loader(*numbers, IDLE_SECONDS if background else None, umask)
            command = msgspec.structs.replace(plan.command, script=script, reporting_script=b"")
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
        """Return whether the prewarmed shell still waits and will not exit before a script can be
        sent to it. A shell that has printed something is not usable, and neither is a shell in a
        directory that was deleted: bash prints an error about the directory when it starts."""
        child = self.child
        if child is None or now() - self._started_at >= _USABLE_SECONDS:
            return False
        poll = select.poll()
        for fd in (child.pidfd, child.output, child.errors):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        return not poll.poll(0) and not processes.is_in_deleted_directory(child.pid)

    def restore(self, state: str, text: bytes) -> None:
        """Tell the prewarmed shell to restore a session's state; a shell can restore a state only
        once. `state` is the name of the session's state, and `text` is the script that restores
        this state. Raises OSError when the prewarmed shell has exited."""
        self.state = state
        _write_memfd(self._state, text)
        os.write(self._control, b"+\n")

    def run(self, call: bytes, script: bytes, mark: run_tag.Tag | None) -> Child:
        """Tell the prewarmed shell to run the script of a command. `call` is bash code that sets
        the directory and variables of one tool call before the script runs. Once the script has
        been sent to the prewarmed shell, the shell is an ordinary child process of the command's
        run. Raises OSError when the prewarmed shell has exited without running the script."""
        assert self.child is not None
        if mark is not None:
            run_tag.apply_tag(self.child.pid, mark, self.hard)
        _write_memfd(self._script, b"%b\0%b\0" % (call, script))
        os.write(self._control, b"\n")
        child, self.child = self.child, None
        self._close()
        return msgspec.structs.replace(child, tag=mark)

    def end(self) -> None:
        """Kill and reap a prewarmed shell that no command has used."""
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
        """Close the shell's descriptors in a forked child, because the shell belongs to the parent
        process."""
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
    """Write a text to the start of a memory file without moving the file offset, because the shell
    that reads the memory file shares that offset."""
    at, rest = 0, memoryview(text)
    while rest:
        done = os.pwrite(fd, rest, at)
        at, rest = at + done, rest[done:]
