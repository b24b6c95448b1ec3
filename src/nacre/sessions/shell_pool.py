"""Shells that wait for their script, of one engine: which of them may serve which command."""

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
_MAX_PER_PROCESS: Final = 24  # of one process, which may have many engines
PER_SESSION: Final = 2  # of one session
_SHELL_OPTIONS: Final = frozenset(
    (b"SHELLOPTS", b"BASHOPTS", b"POSIXLY_CORRECT", b"BASH_FUNC_builtin%%", b"BASH_FUNC_exec%%")
)


class ShellSpec:
    """What a shell must be, so that nobody could tell it from one that was made for the command."""

    def __init__(self, plan: Plan, key: str, name: str, state: ShellState | None) -> None:
        """`key` is its session's; `name` that of its state, or nothing where there is none."""
        self.plan = plan = _without_shell_options(plan)
        self.key = key
        self.name = name
        self.state = state
        self._env = plan_environment(plan)
        given = plan.command.caller_limits
        limits = rlimits.read_rlimits() if given is None else given.limits
        umask = None
        if state is None or not state.umask:  # else that says it
            umask = rlimits.read_umask() if given is None else given.umask
        self.base = (plan.shell, plan.streams, limits, umask, tuple(self._env.items()))

    @property
    def restore_script(self) -> bytes | None:
        """What makes a shell have that state."""
        if self.state is None:
            return None
        return states.build_restore_script(self.state, self._env)

    def fits(self, shell: PrewarmedShell) -> bool:
        """Whether it is such a shell; a session's own state says where that stands."""
        here = bool(self.name) or shell.cwd == self.plan.command.cwd
        return self.key == shell.session and self.base == shell.base and here


class ShellPool:
    """Under the lock of whoever asks; making one is not."""

    def __init__(self) -> None:
        self._shells: list[PrewarmedShell] = []
        _all.add(self)

    def take(self, spec: ShellSpec) -> PrewarmedShell | None:
        """One that waits; what has become wrong meanwhile goes."""
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
        """Those of an earlier state of its session go, and the oldest when there are many."""
        self._shells.append(shell)
        gone = [
            each
            for each in self._shells
            if each.session == shell.session and each.state != shell.state
        ]
        spare = [each for each in self._shells if each not in gone]
        many = len(spare) - _MAX_PER_POOL
        if sum(len(each._shells) for each in [*_all]) > _MAX_PER_PROCESS:
            many = max(1, many)  # others have theirs; the next command of this session takes longer
        for each in gone + spare[: max(0, many)]:
            self._shells.remove(each)
            end_prewarmed(each)

    def count(self, key: str) -> int:
        """How many wait for this session."""
        return sum(each.session == key for each in self._shells)

    @property
    def pids(self) -> set[int]:
        return {each.child.pid for each in self._shells if each.child is not None}

    def close(self) -> None:
        while self._shells:
            end_prewarmed(self._shells.pop())

    def after_fork(self) -> None:
        """We are a fork of our host: all of them are the parent's."""
        while self._shells:
            self._shells.pop().after_fork()


_all: "WeakSet[ShellPool]" = WeakSet()


def start_prewarmed(
    spec: ShellSpec, spawner: Spawner, file: SessionFile, *, quietly: bool = False
) -> PrewarmedShell:
    """A shell that waits. Raises Refused, OSError."""
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
    """It goes, and what it would have been written to."""
    shell.end()
    for path in (shell.draft, f"{shell.draft}.traps"):
        with suppress(OSError):
            os.unlink(path)


def _without_shell_options(plan: Plan) -> Plan:
    """Without what would have a shell go its own way before it is told anything."""
    env = plan_environment(plan)
    if _SHELL_OPTIONS.isdisjoint(env):
        return plan
    env = {name: value for name, value in env.items() if name not in _SHELL_OPTIONS}
    command = msgspec.structs.replace(plan.command, env=env)
    return msgspec.structs.replace(plan, command=command)


def plan_environment(plan: Plan) -> Mapping[bytes, bytes]:
    """What a shell of it is started with."""
    return os.environb if plan.command.env is None else plan.command.env
