"""Shells that wait for their script, of one engine: which of them may serve which command."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from weakref import WeakSet

import msgspec

from nacre.plan import Plan
from nacre.process import terms
from nacre.process.child import Spawner
from nacre.process.warm import Warm
from nacre.shell import state as states
from nacre.shell.state import State
from nacre.store.sessions import SessionFile, new_mark

_MOST: Final = 8
_OF_ALL: Final = 24  # of one process, which may have many engines
READY: Final = 2  # of one session
_ODD: Final = frozenset(
    (b"SHELLOPTS", b"BASHOPTS", b"POSIXLY_CORRECT", b"BASH_FUNC_builtin%%", b"BASH_FUNC_exec%%")
)


class Wanted:
    """What a shell must be, so that nobody could tell it from one that was made for the command."""

    def __init__(self, plan: Plan, key: str, name: str, state: State | None) -> None:
        """`key` is its session's; `name` that of its state, or nothing where there is none."""
        self.plan = plan = _fit(plan)
        self.key = key
        self.name = name
        self.state = state
        self._env = environment(plan)
        given = plan.command.terms
        limits = terms.limits() if given is None else given.limits
        umask = None
        if state is None or not state.umask:  # else that says it
            umask = terms.umask() if given is None else given.umask
        self.base = (plan.shell, plan.streams, limits, umask, tuple(self._env.items()))

    @property
    def text(self) -> bytes | None:
        """What makes a shell have that state."""
        if self.state is None:
            return None
        return states.told(self.state, self._env)

    def fits(self, warm: Warm) -> bool:
        """Whether it is such a shell; a session's own state says where that stands."""
        here = bool(self.name) or warm.cwd == self.plan.command.cwd
        return self.key == warm.session and self.base == warm.base and here


class Shells:
    """Under the lock of whoever asks; making one is not."""

    def __init__(self) -> None:
        self._waiting: list[Warm] = []
        _all.add(self)

    def pick(self, wanted: Wanted) -> Warm | None:
        """One that waits; what has become wrong meanwhile goes."""
        for each in [*self._waiting]:
            if not each.usable or (each.session == wanted.key and each.state != wanted.name):
                self._waiting.remove(each)
                end(each)
            elif wanted.fits(each):
                self._waiting.remove(each)
                return each
        return None

    def enough(self, wanted: Wanted) -> bool:
        alike = [
            each
            for each in self._waiting
            if (each.session, each.state, each.base) == (wanted.key, wanted.name, wanted.base)
        ]
        return len(alike) >= READY

    def add(self, warm: Warm) -> None:
        """Those of an earlier state of its session go, and the oldest when there are many."""
        self._waiting.append(warm)
        gone = [
            each
            for each in self._waiting
            if each.session == warm.session and each.state != warm.state
        ]
        spare = [each for each in self._waiting if each not in gone]
        many = len(spare) - _MOST
        if sum(len(each._waiting) for each in [*_all]) > _OF_ALL:
            many = max(1, many)  # others have theirs; the next command of this session takes longer
        for each in gone + spare[: max(0, many)]:
            self._waiting.remove(each)
            end(each)

    def of(self, key: str) -> int:
        """How many wait for this session."""
        return sum(each.session == key for each in self._waiting)

    @property
    def pids(self) -> set[int]:
        return {each.child.pid for each in self._waiting if each.child is not None}

    def close(self) -> None:
        while self._waiting:
            end(self._waiting.pop())

    def forked(self) -> None:
        """We are a fork of our host: all of them are the parent's."""
        while self._waiting:
            self._waiting.pop().forked()


_all: "WeakSet[Shells]" = WeakSet()


def made(wanted: Wanted, spawner: Spawner, file: SessionFile, *, quietly: bool = False) -> Warm:
    """A shell that waits. Raises Refused, OSError."""
    mark = new_mark()
    warm = Warm(
        wanted.plan,
        spawner,
        base=wanted.base,
        session=wanted.key,
        mark=mark,
        draft=file.draft(mark),
        quietly=quietly,
    )
    try:
        text = wanted.text
        if text is not None:
            warm.become(wanted.name, text)
    except BaseException:
        end(warm)
        raise
    return warm


def end(warm: Warm) -> None:
    """It goes, and what it would have been written to."""
    warm.end()
    for path in (warm.draft, f"{warm.draft}.traps"):
        with suppress(OSError):
            os.unlink(path)


def _fit(plan: Plan) -> Plan:
    """Without what would have a shell go its own way before it is told anything."""
    env = environment(plan)
    if _ODD.isdisjoint(env):
        return plan
    env = {name: value for name, value in env.items() if name not in _ODD}
    command = msgspec.structs.replace(plan.command, env=env)
    return msgspec.structs.replace(plan, command=command)


def environment(plan: Plan) -> Mapping[bytes, bytes]:
    """What a shell of it is started with."""
    return os.environb if plan.command.env is None else plan.command.env
