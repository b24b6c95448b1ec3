"""Shell pool: the prewarmed shells of one engine, and which command may use which shell.

A `ShellSpec` describes the shell that a command needs. The pool returns a prewarmed shell that fits
the spec, and ends outdated and surplus shells. Communication with a shell belongs to
`sessions.prewarmed_shell`.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from weakref import WeakSet

import msgspec

from nacre.model.plan import Plan
from nacre.process import rlimits
from nacre.process.spawner import Spawner
from nacre.sessions.prewarmed_shell import PrewarmedShell
from nacre.shell_state import state as states
from nacre.shell_state.state import ShellState
from nacre.store.session_files import SessionFile, new_draft_id

_MAX_PER_POOL: Final = 8
_MAX_PER_PROCESS: Final = 24  # prewarmed shells of one process, which may have many engines
PER_SESSION: Final = 2  # prewarmed shells of one session
_SHELL_OPTIONS: Final = frozenset(
    (b"SHELLOPTS", b"BASHOPTS", b"POSIXLY_CORRECT", b"BASH_FUNC_builtin%%", b"BASH_FUNC_exec%%")
)


class ShellSpec:
    """Properties that a prewarmed shell needs so that a command cannot distinguish it from a shell
    started for that command."""

    def __init__(self, plan: Plan, key: str, name: str, state: ShellState | None) -> None:
        """Describe the shell for a plan. `key` is the key of the session. `name` is the name of the
        state to restore, empty when there is no state."""
        self.plan = plan = _without_shell_options(plan)
        self.key = key
        self.name = name
        self.state = state
        self._env = plan_environment(plan)
        given = plan.command.caller_limits
        limits = rlimits.read_rlimits() if given is None else given.limits
        umask = None
        if state is None or not state.umask:  # otherwise the state sets the umask
            umask = rlimits.read_umask() if given is None else given.umask
        self.base = (plan.shell, plan.streams, limits, umask, tuple(self._env.items()))

    @property
    def restore_script(self) -> bytes | None:
        """Script that restores the state in a shell; None when there is no state."""
        if self.state is None:
            return None
        return states.build_restore_script(self.state, self._env)

    def fits(self, shell: PrewarmedShell) -> bool:
        """Return whether a prewarmed shell fits this spec. The shell's directory is compared only
        if there is no state to restore, because restoring a state changes the directory."""
        here = bool(self.name) or shell.cwd == self.plan.command.cwd
        return self.key == shell.session and self.base == shell.base and here


class ShellPool:
    """Prewarmed shells of one engine. The caller holds its own lock during every method call.
    Shells started in the background are spawned without that lock."""

    def __init__(self) -> None:
        self._shells: list[PrewarmedShell] = []
        _all.add(self)

    def take(self, spec: ShellSpec) -> PrewarmedShell | None:
        """Remove a fitting shell from the pool and return it; None if the pool has none. End shells
        that are no longer usable and shells with an outdated state of the session."""
        for each in [*self._shells]:
            if not each.usable or (each.session == spec.key and each.state != spec.name):
                self._shells.remove(each)
                end_prewarmed(each)
            elif spec.fits(each):
                self._shells.remove(each)
                return each
        return None

    def has_enough(self, spec: ShellSpec) -> bool:
        alike = [
            each
            for each in self._shells
            if (each.session, each.state, each.base) == (spec.key, spec.name, spec.base)
        ]
        return len(alike) >= PER_SESSION

    def add(self, shell: PrewarmedShell) -> None:
        """Add a shell to the pool. End shells with an earlier state of the same session, and the
        oldest shells when the pool or the process has too many."""
        self._shells.append(shell)
        gone = [
            each
            for each in self._shells
            if each.session == shell.session and each.state != shell.state
        ]
        spare = [each for each in self._shells if each not in gone]
        many = len(spare) - _MAX_PER_POOL
        if sum(len(each._shells) for each in [*_all]) > _MAX_PER_PROCESS:
            # The process has too many shells. This pool ends its own oldest shell, and other pools
            # keep theirs. The next command that would have used that shell takes longer.
            many = max(1, many)
        for each in gone + spare[: max(0, many)]:
            self._shells.remove(each)
            end_prewarmed(each)

    def count(self, key: str) -> int:
        """Return the number of prewarmed shells for a session."""
        return sum(each.session == key for each in self._shells)

    @property
    def pids(self) -> set[int]:
        return {each.child.pid for each in self._shells if each.child is not None}

    def close(self) -> None:
        while self._shells:
            end_prewarmed(self._shells.pop())

    def after_fork(self) -> None:
        """Drop all shells after fork(2): they belong to the parent process."""
        while self._shells:
            self._shells.pop().after_fork()


_all: "WeakSet[ShellPool]" = WeakSet()


def start_prewarmed(
    spec: ShellSpec, spawner: Spawner, file: SessionFile, *, quietly: bool = False
) -> PrewarmedShell:
    """Start a prewarmed shell and tell it to restore the state in `spec`. `quietly` starts the
    shell without blocking other threads. Raises Refused, OSError."""
    mark = new_draft_id()
    shell = PrewarmedShell(
        spec.plan,
        spawner,
        base=spec.base,
        session=spec.key,
        draft_id=mark,
        draft=file.create_draft(mark),
        background=quietly,
    )
    try:
        text = spec.restore_script
        if text is not None:
            shell.restore(spec.name, text)
    except BaseException:
        end_prewarmed(shell)
        raise
    return shell


def end_prewarmed(shell: PrewarmedShell) -> None:
    """Kill an unused shell and delete its draft files."""
    shell.end()
    for path in (shell.draft, f"{shell.draft}.traps"):
        with suppress(OSError):
            os.unlink(path)


def _without_shell_options(plan: Plan) -> Plan:
    """Return the plan without environment variables that change bash's behaviour at startup, before
    the prewarmed shell reads any instruction."""
    env = plan_environment(plan)
    if _SHELL_OPTIONS.isdisjoint(env):
        return plan
    env = {name: value for name, value in env.items() if name not in _SHELL_OPTIONS}
    command = msgspec.structs.replace(plan.command, env=env)
    return msgspec.structs.replace(plan, command=command)


def plan_environment(plan: Plan) -> Mapping[bytes, bytes]:
    """Return the environment that the plan's shell starts with."""
    return os.environb if plan.command.env is None else plan.command.env
