"""Session manager of one engine: runs commands in persistent shells.

A session is a directory (`store.session_files`). When a command of a session ends, a saver writes
the shell's state to a draft. A worker thread reads that state and starts prewarmed shells, which
restore the state and wait for a script. The session's next command takes a prewarmed shell. If
none is ready yet, the command starts a new shell.

All threads of the engine share one manager. A run that must wait for a session retries with a
timer of its event loop.
"""

import atexit
import os
import re
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakSet

import msgspec

from nacre.eventloop import Callback, EventLoop
from nacre.model.cancel import CancelToken
from nacre.model.plan import Plan, Session
from nacre.model.refusals import BadDirectory, DirectoryProblem, Refused
from nacre.process import spawn_posix
from nacre.process.run_tag import Tag
from nacre.process.spawner import Child, Spawner
from nacre.sessions.lease import SessionLease
from nacre.sessions.prewarmed_shell import PrewarmedShell
from nacre.sessions.setup_cache import BEING_READ, SetupCache
from nacre.sessions.shell_pool import (
    PER_SESSION,
    ShellPool,
    ShellSpec,
    end_prewarmed,
    plan_environment,
    start_prewarmed,
)
from nacre.sessions.worker_thread import Worker
from nacre.shell_state import bash_code
from nacre.shell_state.state import ShellState
from nacre.shell_state.stateless_commands import is_unchanging
from nacre.store.session_files import Ledger, SessionFile

_FIRST_RETRY: Final = 0.001  # seconds before the first retry on a busy session; doubles each time
_SLOWEST_RETRY: Final = 0.02  # maximum seconds between two retries on a busy session
_MAX_OPEN_FILES: Final = 16  # sessions whose files are kept open
_SAVE_TIMEOUT: Final = 5.0  # seconds to wait for a saver to exit
_POLL_INTERVAL: Final = 0.0003  # seconds between two reads of a ledger
# Commands that may set a trap, also in code that is not visible in the script.
_MAY_TRAP: Final = re.compile(rb"trap|source|eval|(?:^|[\s;&|({])\.\s")


_all: "WeakSet[SessionManager]" = WeakSet()


@atexit.register
def close_all() -> None:
    """Close every session manager at interpreter exit, while nacre's threads still run. Later in
    the shutdown, the threads would no longer release the resources that they hold."""
    for each in [*_all]:
        each.close()


class SessionUnavailable(Exception):
    """Failure to use a session's files, so no state can be kept; the message says why."""


class SessionManager:
    def __init__(
        self, run: Callable[[Plan, CancelToken], None], spawn_lock: threading.Lock, *, prewarm: bool
    ) -> None:
        """Create the manager. `run` runs one of nacre's own plans and returns when that plan ends.
        `prewarm` means that shells are started before a command needs them. The worker thread
        holds `spawn_lock` while it starts a prewarmed shell."""
        self._closed = False
        self._spawner: Spawner | None = None
        self._prewarm = prewarm
        self._spawn_lock = spawn_lock
        self._lock = threading.RLock()
        self._files: dict[tuple[str, str], SessionFile] = {}
        self._lease_counts: dict[SessionFile, int] = {}  # commands running in each session
        self._retry_intervals: dict[SessionFile, float] = {}
        self._pool = ShellPool()
        self._discarded: set[tuple[SessionFile, str]] = set()  # drafts to delete without use
        self._cancel_setup = CancelToken()
        self._worker = Worker()
        self._setup_cache = SetupCache(lambda plan: run(plan, self._cancel_setup), self._worker)
        _all.add(self)

    def read_cwd(self, place: str, key: str, seconds: float = 0.1) -> tuple[bytes | None, bool]:
        """Return the working directory of a session's shell, and whether the directory is certain.
        The directory is None while the session does not exist. Callers need the directory before
        they can build a request. Wait at most `seconds` for a saver to finish."""
        try:
            end = time.monotonic() + seconds
            while True:
                with self._lock:
                    file = self._open_file(place, key)
                    ledger, busy = self._read_ledger(file)
                if ledger is not None:
                    return ledger.directory or None, not busy
                if time.monotonic() > end:
                    return file.read_ledger().directory or None, False
                # A saver is still writing the state of the shell that has just exited.
                time.sleep(_POLL_INTERVAL)
        except OSError:
            return None, True

    def _read_ledger(self, file: SessionFile) -> tuple[Ledger | None, bool]:
        """Return the session's ledger, and whether a running command may still change the ledger.
        The ledger is None while a saver is writing the draft. Commands that run in the session from
        other processes count, too. Raises OSError."""
        if self._lease_counts.get(file) or not file.lock():
            return file.read_ledger(), True
        try:
            return file.apply_pending_draft(file.read_ledger()), False
        finally:
            file.unlock()

    def acquire(
        self, plan: Plan, spawner: Spawner, mark: Tag | None, loop: EventLoop, again: Callback
    ) -> tuple[Child, SessionLease] | None:
        """Start the plan's command in a shell of its session, and return the shell and the lease.
        Return None when the session is not ready. After a result of None, the event loop calls
        `again` when the caller should retry. Raises Refused, SessionUnavailable."""
        session = plan.session
        assert session is not None
        try:
            with self._lock:
                file = self._open_file(session.workspace_key, session.key)
                alone = not self._lease_counts.get(file)
                locked = alone and file.lock()
                ledger = None
                if locked or not alone:
                    ledger = file.apply_pending_draft(file.read_ledger())
                elif session.detached:
                    # A detached command only copies the state, so it does not wait for the lock.
                    ledger = file.read_ledger()
                state = None if ledger is None else self._initial_state(plan, session, file, ledger)
                begins = ledger is not None and state is not BEING_READ
                if locked and not (begins and not session.detached):
                    file.unlock()
                if ledger is None or not begins:
                    self._retry_later(file, loop, again)
                    return None
                self._retry_intervals.pop(file, None)
                if session.detached:
                    return self._run_in_shell(plan, session, file, ledger, state, spawner, mark)
                self._lease_counts[file] = self._lease_counts.get(file, 0) + 1
                try:
                    return self._run_in_shell(plan, session, file, ledger, state, spawner, mark)
                except BaseException:
                    self.release(file)
                    raise
        except OSError as error:
            raise SessionUnavailable(
                f"the session cannot be saved ({error.strerror or error})"
            ) from error

    def _initial_state(
        self, plan: Plan, session: Session, file: SessionFile, ledger: Ledger
    ) -> ShellState | None:
        """Return the state that the session's next shell restores: the saved state, or the user's
        set-up in a new session. BEING_READ means that the set-up is still being read and the caller
        must retry. Raises OSError."""
        return file.read_state(ledger) if ledger.state else self._setup_cache.state(plan, session)

    def is_reading_setup(self, plan: Plan) -> bool:
        """Return whether the user set-up for the plan's session is still being read."""
        return plan.session is not None and self._setup_cache.is_reading(plan.session)

    def release(self, file: SessionFile) -> None:
        """Release one command's hold on a session, after the command has ended or was detached. The
        last release unlocks the session."""
        with self._lock:
            users = self._lease_counts.pop(file, 0) - 1
            if users > 0:
                self._lease_counts[file] = users
                return
            file.unlock()
            for key, other in [*self._files.items()][:-_MAX_OPEN_FILES]:
                if other not in self._lease_counts:  # closed files are reopened on demand
                    del self._files[key]
                    self._retry_intervals.pop(other, None)
                    other.close()

    def _retry_later(self, file: SessionFile, loop: EventLoop, again: Callback) -> None:
        pause = self._retry_intervals.get(file, _FIRST_RETRY)
        self._retry_intervals[file] = min(2 * pause, _SLOWEST_RETRY)
        loop.call_later(pause, again)

    def _open_file(self, place: str, key: str) -> SessionFile:
        """Return the open file of a session, from the cache if possible. Raises OSError."""
        file = self._files.get((place, key))
        if file is not None and file.is_removed and not self._lease_counts.get(file):
            file.close()
            file = None
        if file is None:
            file = self._files[place, key] = SessionFile(place, key)
        return file

    def _run_in_shell(
        self,
        plan: Plan,
        session: Session,
        file: SessionFile,
        ledger: Ledger,
        state: ShellState | None,
        spawner: Spawner,
        mark: Tag | None,
    ) -> tuple[Child, SessionLease]:
        if not ledger.created:
            ledger = msgspec.structs.replace(
                ledger, name=session.name, contract=session.contract, created=time.time()
            )
            if session.name and not session.detached:
                file.write_ledger(ledger)  # from now on, a lookup by name finds the session
        spec = _shell_spec(_in_session_cwd(plan, session, ledger), session, ledger, state)
        stands = ledger.directory or session.cwd_when_decided
        # The state after a session's first command is always saved, because the session keeps the
        # environment and the directory of its first command.
        plain = session.detached or (bool(ledger.state) and _keeps_state(plan, session, state))
        begins = _start_directory(plan, session, stands)
        while True:
            shell = self._pool.take(spec) if plan.stdin is None else None
            ready = shell is not None
            shell = shell or start_prewarmed(spec, spawner, file)
            call = bash_code.build_call(
                draft=None if plain else os.fsencode(file.draft_path(shell.draft_id)),
                mark=shell.draft_id.encode(),
                status=ledger.status,
                seen=state is not None and b"CHLD" in state.traps,
                directory=begins,
                home=stands if plan.command.cwd_given else None,
                env=plan.command.call_env,
                traps=not plain and _may_trap(plan.command.script, state),
            )
            try:
                child = shell.run(call, plan.command.script, mark)
            except OSError:  # the shell has exited without running the script
                end_prewarmed(shell)
                if not ready:
                    raise
            else:
                lost = ledger.lost
                ledger = msgspec.structs.replace(ledger, lost=False)
                return child, SessionLease(
                    self, file, ledger, shell.draft_id, plan, unchanging=plain, lost=lost
                )

    # Background work in the worker thread.

    def prepare(
        self, plan: Plan, file: SessionFile, savers: list[int], unwanted: str | None
    ) -> None:
        """Start prewarmed shells in the background, after a command of the session has ended. The
        worker thread first waits until the processes in `savers` exit. `unwanted` is the id of a
        draft to delete, or None."""
        if unwanted is not None:
            self._discarded.add((file, unwanted))
        if self._prewarm and not self._closed:
            self._worker.submit(lambda: self._prepare(plan, file, savers))

    def discard(self, file: SessionFile, mark: str, savers: list[int]) -> None:
        """Delete an unneeded draft after the processes in `savers` have exited."""
        self._discarded.add((file, mark))
        if self._prewarm and not self._closed:
            self._worker.submit(lambda: self._wait_and_remove(savers))

    def _wait_and_remove(self, savers: list[int]) -> None:
        for pid in savers:
            _wait_for_exit(pid)
        self._remove_discarded()

    def _remove_discarded(self) -> None:
        while self._discarded:
            file, mark = self._discarded.pop()
            file.remove_draft(mark)

    def _prepare(self, plan: Plan, file: SessionFile, savers: list[int]) -> None:
        self._wait_and_remove(savers)
        session = plan.session
        assert session is not None
        plan = msgspec.structs.replace(plan, stdin=None)
        for _ in range(PER_SESSION):
            try:
                with self._lock:
                    ledger = None if self._closed or file.is_removed else self._read_ledger(file)[0]
                    if ledger is None or self._lease_counts.get(file):
                        return
                    state = self._initial_state(plan, session, file, ledger)
                    stood = _in_session_cwd(plan, session, ledger)
                    spec = _shell_spec(stood, session, ledger, state)
                    if state is BEING_READ or self._pool.has_enough(spec):
                        return
                    spawner = self._spawner = self._spawner or Spawner(own_process=False)
                with self._spawn_lock:
                    self._add_to_pool(
                        start_prewarmed(spec, spawner, file, quietly=spawn_posix.is_available())
                    )
            except (Refused, OSError):
                return  # no resources for a prewarmed shell; the next command starts its own shell

    def _add_to_pool(self, shell: PrewarmedShell) -> None:
        with self._lock:
            self._pool.add(shell)
            if self._closed:
                self._pool.close()

    def count_prewarmed(self, key: str) -> int:
        """Return the number of prewarmed shells for a session."""
        with self._lock:
            return self._pool.count(key)

    @property
    def pids(self) -> set[int]:
        """Process ids of all prewarmed shells."""
        with self._lock:
            return self._pool.pids

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._cancel_setup.cancel()
        self._worker.close()
        self._remove_discarded()
        with self._lock:
            self._pool.close()
            while self._files:
                self._files.popitem()[1].close()
            if self._spawner is not None:
                self._spawner.close()

    def after_fork(self) -> None:
        """Drop all shells, files and leases after fork(2): they belong to the parent process."""
        self._lock = threading.RLock()
        self._worker.after_fork()
        self._pool.after_fork()
        while self._files:
            self._files.popitem()[1].close()
        self._lease_counts.clear()


def _shell_spec(
    plan: Plan, session: Session, ledger: Ledger, state: ShellState | None
) -> ShellSpec:
    # In a new session, the name of the initial state includes the session's directory.
    name = (
        ""
        if state is None
        else ledger.state or f"+{session.setup_signature} {session.cwd_when_decided!r}"
    )
    return ShellSpec(plan, session.key, name, state)


def _keeps_state(plan: Plan, session: Session, state: ShellState | None) -> bool:
    stays = plan.command.cwd_given or plan.command.cwd == session.cwd_when_decided
    return stays and is_unchanging(plan.command.script, state)


def _may_trap(script: bytes, state: ShellState | None) -> bool:
    """Return whether a script may change the traps for INT or QUIT. A false positive is harmless
    and only makes saving the state slower."""
    if _MAY_TRAP.search(script):
        return True
    if state is None:
        return False
    if b"trap" in state.aliases:
        return True
    return b"trap" in state.functions and any(name in script for name in state.names)


def _start_directory(plan: Plan, session: Session, stands: bytes) -> bytes | None:
    """Return the directory where the command starts, or None for the shell's current directory.
    Raises Refused when the shell's current directory cannot be entered. The command is refused
    because it might do harm in another directory, and the caller could not know about the problem.
    """
    command = plan.command
    if command.cwd_given or command.cwd != session.cwd_when_decided:
        return command.cwd
    if not _is_enterable(stands):
        there = os.path.isdir(stands)
        problem = DirectoryProblem.FORBIDDEN if there else DirectoryProblem.MISSING
        raise Refused(BadDirectory(path=stands, problem=problem))
    return None


def _is_enterable(path: bytes) -> bool:
    return os.access(path + b"/.", os.X_OK)


def _in_session_cwd(plan: Plan, session: Session, ledger: Ledger) -> Plan:
    """Return the plan with the session's directory in place of the command's own directory. A
    session's shell starts in the session's directory and enters the command's directory later."""
    for place in (session.cwd_when_decided, ledger.directory):
        if place and _is_enterable(place):
            if place == plan.command.cwd:
                return plan
            command = msgspec.structs.replace(plan.command, cwd=place)
            return msgspec.structs.replace(plan, command=command)
    return plan


def without_session(plan: Plan) -> Plan:
    """Return a plan that runs the same command in a new shell without a session."""
    env = {**plan_environment(plan), **plan.command.call_env}
    command = msgspec.structs.replace(plan.command, env=env)
    return msgspec.structs.replace(plan, session=None, command=command)


def _wait_for_exit(pid: int) -> None:
    """Wait until a saver exits, at most `_SAVE_TIMEOUT` seconds. Reap the saver if this process has
    adopted it as an orphan."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # the process has already exited
        return
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if poll.poll(_SAVE_TIMEOUT * 1000):
            with suppress(OSError):
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    finally:
        os.close(pidfd)
