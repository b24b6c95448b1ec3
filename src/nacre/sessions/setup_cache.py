"""Cache of user set-ups (what the user's shell startup files define) for new sessions.

A worker thread reads the user's shell startup files once, and again only after the files have
changed; new sessions wait until the files have been read. What the user's shell startup files
define is also stored on disk (`store.setup_snapshots`). The module `sessions.user_setup` runs the
user's shell to find out what its startup files define.
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

# Result of `SetupCache.state` while the user's shell startup files are being read; compared by
# identity.
BEING_READ: Final = states.EMPTY


class SetupCache:
    """Cache of what the user's shell startup files define, by signature (a digest of the files).

    The session manager holds its lock while it calls `SetupCache.state`, but the worker thread
    reads the user's shell startup files without the lock of the session manager.
    """

    def __init__(self, run: Callable[[Plan], None], worker: Worker) -> None:
        """`run` executes a command that reads the user's shell startup files, and returns when the
        command has ended."""
        # Inputs (signature, environment, directory) of the last call of `initial_state`, and the
        # shell state that the call returned; None before the first call.
        self._last_state: tuple[object, ShellState] | None = None
        self._run = run
        self._worker = worker
        self._snapshots: dict[str, setup_snapshots.SetupSnapshot] = {}
        self._reading: set[str] = set()

    def state(self, plan: Plan, session: Session) -> ShellState | None:
        """Return the initial shell state of a new session. Return None if the session starts
        without definitions from the user's shell startup files. Return BEING_READ while the user's
        shell startup files are still being read; the caller must then retry."""
        name = session.setup_signature
        if not name:
            return None
        # The worker thread adds the signature of the startup files to `_snapshots` before it
        # removes the signature from `_reading`, so `SetupCache.state` checks `_reading` first.
        # Checking `_snapshots` before `_reading` would be a race: if the worker thread finished
        # between the two checks, the startup files would be read a second time.
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
        # lazy import, because the user's shell startup files are rarely read
        from nacre.sessions.user_setup import read_user_setup

        snapshot = setup_snapshots.SetupSnapshot(created=time.time(), state=None)
        try:
            state = read_user_setup(
                plan.shell, plan_environment(plan), session.cwd_when_decided, self._run
            )
            snapshot = msgspec.structs.replace(snapshot, state=state)
            setup_snapshots.save_snapshot(session.setup_signature, snapshot)
        except (OSError, ValueError):
            # If the user's shell startup files could not be read, or what they define could not be
            # stored on disk, the next process reads the startup files again.
            pass
        finally:
            # Add an entry to `_snapshots` even if the user's shell startup files could not be read
            # (then with `state=None`), because new sessions wait for this entry.
            self._snapshots[session.setup_signature] = snapshot
            self._reading.discard(session.setup_signature)
