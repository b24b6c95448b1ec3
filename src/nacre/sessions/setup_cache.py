"""What new sessions begin with: the user's own set-up, which is read once, while they wait."""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from nacre.model.plan import Plan, Session
from nacre.sessions.shell_pool import plan_environment
from nacre.sessions.worker_thread import Worker
from nacre.shell_state import state as states
from nacre.shell_state.state import ShellState
from nacre.store import setup_snapshots

BEING_READ: Final = states.EMPTY  # by identity: it is just being read


class SetupCache:
    """Under the lock of whoever asks; reading is not."""

    def __init__(self, run: Callable[[Plan], None], worker: Worker) -> None:
        """`run` runs something of our own to its end."""
        self._last_state: tuple[object, ShellState] | None = (
            None  # what the last one began with, and of what
        )
        self._run = run
        self._worker = worker
        self._snapshots: dict[str, setup_snapshots.SetupSnapshot] = {}
        self._reading: set[str] = set()

    def state(self, plan: Plan, session: Session) -> ShellState | None:
        """None: with nothing; BEING_READ: ask again."""
        name = session.setup_signature
        if not name:
            return None
        # Asked first: the worker stores the snapshot, and then has read it. In the other order a
        # read that ends between the two questions would be done again.
        reading = name in self._reading
        found = self._snapshots.get(name) or setup_snapshots.load_snapshot(name)
        if found is None:
            if not reading:
                self._reading.add(name)
                self._worker.submit(lambda: self._read(plan, session))
            return BEING_READ
        self._snapshots[name] = found
        if found.state is None:
            return None
        env = plan_environment(plan)
        begins = (name, tuple(env.items()), session.cwd_when_decided)
        if self._last_state is None or self._last_state[0] != begins:
            self._last_state = (
                begins,
                states.initial_state(found.state, env, session.cwd_when_decided),
            )
        return self._last_state[1]

    def is_reading(self, session: Session) -> bool:
        return session.setup_signature in self._reading

    def _read(self, plan: Plan, session: Session) -> None:
        from nacre.sessions.user_setup import read_user_setup  # seldom

        snapshot = setup_snapshots.SetupSnapshot(created=time.time(), state=None)
        try:
            state = read_user_setup(
                plan.shell, plan_environment(plan), session.cwd_when_decided, self._run
            )
            snapshot = msgspec.structs.replace(snapshot, state=state)
            setup_snapshots.save_snapshot(session.setup_signature, snapshot)
        except (OSError, ValueError):
            pass  # it is tried again by the next process
        finally:  # a session waits for it
            self._snapshots[session.setup_signature] = snapshot
            self._reading.discard(session.setup_signature)
