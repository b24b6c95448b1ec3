"""Cache of user set-ups, the initial state of new sessions.

A worker thread reads each set-up once, while the new sessions wait for the set-up. Set-ups are also
stored on disk (`store.setup_snapshots`). Running the user's shell belongs to `sessions.user_setup`.
"""

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

BEING_READ: Final = states.EMPTY  # compared by identity; the set-up is being read


class SetupCache:
    """User set-ups by signature. The caller holds its own lock during every method call. The worker
    thread reads set-ups without that lock."""

    def __init__(self, run: Callable[[Plan], None], worker: Worker) -> None:
        """Create the cache. `run` runs one of nacre's own plans and returns when that plan ends."""
        # A pair: the values that the last initial state was computed from, and that initial state.
        self._last_state: tuple[object, ShellState] | None = None
        self._run = run
        self._worker = worker
        self._snapshots: dict[str, setup_snapshots.SetupSnapshot] = {}
        self._reading: set[str] = set()

    def state(self, plan: Plan, session: Session) -> ShellState | None:
        """Return the initial state of a new session. None means that the session starts without a
        set-up. BEING_READ means that the set-up is still being read and the caller must retry."""
        name = session.setup_signature
        if not name:
            return None
        # Check `_reading` before the snapshots: the worker thread stores the snapshot first and
        # removes the name from `_reading` afterwards. In the opposite order, a set-up whose read
        # ends between the two checks would be read a second time.
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
        from nacre.sessions.user_setup import read_user_setup  # lazy import; rarely needed

        snapshot = setup_snapshots.SetupSnapshot(created=time.time(), state=None)
        try:
            state = read_user_setup(
                plan.shell, plan_environment(plan), session.cwd_when_decided, self._run
            )
            snapshot = msgspec.structs.replace(snapshot, state=state)
            setup_snapshots.save_snapshot(session.setup_signature, snapshot)
        except (OSError, ValueError):
            pass  # the next process reads the set-up again
        finally:  # also after a failure, because a session waits for the result
            self._snapshots[session.setup_signature] = snapshot
            self._reading.discard(session.setup_signature)
