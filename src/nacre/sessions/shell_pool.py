"""Shell pool: keeps the prewarmed shells of one engine and finds a fitting one for each command.

A `ShellSpec` describes the shell that a command needs. The pool returns a prewarmed shell that fits
a `ShellSpec`, and kills shells that are outdated or too many. The module `sessions.prewarmed_shell`
communicates with a prewarmed shell.
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
# maximum number of prewarmed shells in one process, which may have many engines
_MAX_PER_PROCESS: Final = 24
PER_SESSION: Final = 2  # number of prewarmed shells to keep ready for one session
_SHELL_OPTIONS: Final = frozenset(
    (b"SHELLOPTS", b"BASHOPTS", b"POSIXLY_CORRECT", b"BASH_FUNC_builtin%%", b"BASH_FUNC_exec%%")
)


class ShellSpec:
    """Properties that a prewarmed shell needs so that a command cannot distinguish it from a shell
    started for that command."""

    def __init__(self, plan: Plan, key: str, name: str, state: ShellState | None) -> None:
        """Describe the shell that a plan needs. `key` identifies the plan's session. `name` is the
        name of the session state that the shell must restore, empty when there is no state."""
        self.plan = plan = _without_shell_options(plan)
        self.key = key
        self.name = name
        self.state = state
        self._env = plan_environment(plan)
        given = plan.command.caller_limits
        limits = rlimits.read_rlimits() if given is None else given.limits
        umask = None
        # The umask at the start of a shell matters only if restoring the session's state does not
        # set the umask.
        if state is None or not state.umask:
            umask = rlimits.read_umask() if given is None else given.umask
        self.base = (plan.shell, plan.streams, limits, umask, tuple(self._env.items()))

    @property
    def restore_script(self) -> bytes | None:
        """Bash script that restores the session's state in a shell; None when there is no state to
        restore."""
        if self.state is None:
            return None
        return states.build_restore_script(self.state, self._env)

    def fits(self, shell: PrewarmedShell) -> bool:
        """Return whether a prewarmed shell has the properties that this spec requires. The
        prewarmed shell must be in the plan's directory only if there is no session state to
        restore, because restoring a state changes the directory."""
        here = bool(self.name) or shell.cwd == self.plan.command.cwd
        return self.key == shell.session and self.base == shell.base and here


class ShellPool:
    """Pool of the prewarmed shells of one engine. The session manager holds its own lock while it
    calls a method of the pool, but not while it spawns a prewarmed shell for the pool."""

    def __init__(self) -> None:
        self._shells: list[PrewarmedShell] = []
        _all.add(self)

    def take(self, spec: ShellSpec) -> PrewarmedShell | None:
        """Remove a prewarmed shell that fits `spec` from the pool and return it; return None if no
        shell fits. Kill prewarmed shells that are no longer usable or have an outdated state of the
        session."""
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
        """Add a prewarmed shell to the pool, and kill the shells of the same session that have
        another session state. If the pool or the process then has too many prewarmed shells, kill
        the oldest shells of the pool."""
        self._shells.append(shell)
        gone = [
            each
            for each in self._shells
            if each.session == shell.session and each.state != shell.state
        ]
        spare = [each for each in self._shells if each not in gone]
        many = len(spare) - _MAX_PER_POOL
        if sum(len(each._shells) for each in [*_all]) > _MAX_PER_PROCESS:
            # If all pools of the process together have too many shells, the pool that has just got
            # a new shell kills its oldest shell, and the other pools kill none. A command that
            # would have used a killed prewarmed shell takes longer, because it needs a new bash.
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
        """Drop all prewarmed shells in a forked child, because they belong to the parent
        process."""
        while self._shells:
            self._shells.pop().after_fork()


_all: "WeakSet[ShellPool]" = WeakSet()


def start_prewarmed(
    spec: ShellSpec, spawner: Spawner, file: SessionFile, *, quietly: bool = False
) -> PrewarmedShell:
    """Start a prewarmed shell and tell it to restore the session state that `spec` contains. If
    `quietly` is True, the start of the shell does not block other threads. Raises Refused,
    OSError."""
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
    """Kill an unused prewarmed shell and delete the files for its saved state."""
    shell.end()
    for path in (shell.draft, f"{shell.draft}.traps"):
        with suppress(OSError):
            os.unlink(path)


def _without_shell_options(plan: Plan) -> Plan:
    """Return the plan without the environment variables, such as SHELLOPTS, that would change
    bash's behaviour before a prewarmed shell reads its first instruction."""
    env = plan_environment(plan)
    if _SHELL_OPTIONS.isdisjoint(env):
        return plan
    env = {name: value for name, value in env.items() if name not in _SHELL_OPTIONS}
    command = msgspec.structs.replace(plan.command, env=env)
    return msgspec.structs.replace(plan, command=command)


def plan_environment(plan: Plan) -> Mapping[bytes, bytes]:
    """Return the environment that the plan's shell starts with."""
    return os.environb if plan.command.env is None else plan.command.env
