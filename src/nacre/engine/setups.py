"""What new sessions begin with: the user's own set-up, which is read once, while they wait."""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from nacre.engine.shells import environment
from nacre.engine.stoker import Stoker
from nacre.plan import Plan, Session
from nacre.shell import state as states
from nacre.shell.state import State
from nacre.store import snapshots

UNKNOWN: Final = states.NOTHING  # by identity: it is just being read


class Setups:
    """Under the lock of whoever asks; reading is not."""

    _begins: tuple[object, State] | None = None  # what the last one began with, and of what

    def __init__(self, run: Callable[[Plan], None], stoker: Stoker) -> None:
        """`run` runs something of our own to its end."""
        self._run = run
        self._stoker = stoker
        self._known: dict[str, snapshots.Snapshot] = {}
        self._reading: set[str] = set()

    def state(self, plan: Plan, session: Session) -> State | None:
        """None: with nothing; UNKNOWN: ask again."""
        name = session.setup
        if not name:
            return None
        found = self._known.get(name) or snapshots.load(name)
        if found is None:
            if name not in self._reading:
                self._reading.add(name)
                self._stoker.do(lambda: self._read(plan, session))
            return UNKNOWN
        self._known[name] = found
        if found.state is None:
            return None
        env = environment(plan)
        begins = (name, tuple(env.items()), session.stood)
        if self._begins is None or self._begins[0] != begins:
            self._begins = (begins, states.begun(found.state, env, session.stood))
        return self._begins[1]

    def reads(self, session: Session) -> bool:
        return session.setup in self._reading

    def _read(self, plan: Plan, session: Session) -> None:
        from nacre.engine.snapshot import make  # seldom

        made = snapshots.Snapshot(made=time.time(), state=None)
        try:
            state = make(plan.shell, environment(plan), session.stood, self._run)
            made = msgspec.structs.replace(made, state=state)
            snapshots.save(session.setup, made)
        except (OSError, ValueError):
            pass  # it is tried again by the next process
        finally:  # a session waits for it
            self._known[session.setup] = made
            self._reading.discard(session.setup)
