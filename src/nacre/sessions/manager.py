"""Session manager: runs the commands of one engine in persistent shells.

A session is stored in a directory, see `store.session_files`. When a command of a session ends, a
forked copy of its shell (the saver) writes the shell's state to a file (the draft). A worker thread
reads the saved state of a session and starts prewarmed shells, which restore the state and wait for
a script. The session's next command runs in a prewarmed shell, or in a new shell if no prewarmed
shell is ready yet.

All threads of an engine share one session manager. If a session is busy, a timer of the event loop
tries again to start the command.
"""

import atexit
import os
import re
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple
from weakref import WeakSet

import msgspec

from nacre.bash.paths import is_enterable, nearest_directory
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
from nacre.shell_state import bash_code, pipeline_report
from nacre.shell_state.state import ShellState
from nacre.shell_state.stateless_commands import is_unchanging
from nacre.store.session_files import Ledger, PendingDraft, SessionFile

# seconds before the first retry on a busy session; doubled after each retry
_FIRST_RETRY: Final = 0.001
_SLOWEST_RETRY: Final = 0.02  # maximum seconds between two retries on a busy session
_MAX_OPEN_FILES: Final = 16  # number of sessions whose files stay open between commands
_SAVE_TIMEOUT: Final = 5.0  # seconds to wait for the exit of a process that saves a shell's state
_POLL_INTERVAL: Final = 0.0003  # seconds between two reads of a session's ledger file
# Commands that may set a trap: `trap` itself, and `source`, `.` and `eval`, which run code that may
# contain `trap`.
_MAY_TRAP: Final = re.compile(rb"trap|source|eval|(?:^|[\s;&|({])\.\s")


# Scripts and functions for which nacre defines no function `trap`: those with traps that would
# notice the function, with a function or an alias of that name, or in POSIX mode.
_NO_TRAP_FUNCTION: Final = re.compile(
    rb"\b(?:DEBUG|ERR|RETURN|POSIXLY_CORRECT|posix)\b|\btrap=|\btrap\s{0,9}\(|\bfunction\s{1,9}trap\b"
    rb"|\b(?:declare|typeset|export|readonly|unset)\s{1,9}-\w{0,9}[fF]"
)


_all: "WeakSet[SessionManager]" = WeakSet()


@atexit.register
def close_all() -> None:
    """Close every session manager at interpreter exit, while nacre's threads still run; later in
    the interpreter's shutdown, the threads would no longer release the resources that they hold."""
    for each in [*_all]:
        each.close()


class SessionUnavailable(Exception):
    """Error: a session's files cannot be used, so the session keeps no shell state; the message
    says why."""


class SessionManager:
    def __init__(
        self, run: Callable[[Plan, CancelToken], None], spawn_lock: threading.Lock, *, prewarm: bool
    ) -> None:
        """Create the session manager of one engine. `run` executes a command that reads the user's
        shell set-up, and returns when that command has ended. `prewarm` means that shells are
        started before a command needs them. The worker thread holds `spawn_lock` while it starts a
        prewarmed shell."""
        self._closed = False
        # The spawner for prewarmed shells is created here, not by the worker thread: while the
        # warden spawns a shell, the warden itself has the run tag of that shell for a moment, and a
        # spawner that is created at this moment would take that run for its outer run.
        self._spawner = Spawner(own_process=False) if prewarm else None
        self._prewarm = prewarm
        self._spawn_lock = spawn_lock
        self._lock = threading.RLock()
        self._files: dict[tuple[str, str], SessionFile] = {}
        self._lease_counts: dict[SessionFile, int] = {}  # number of running commands per session
        self._retry_intervals: dict[SessionFile, float] = {}
        # number of live detached commands per session, which may still save their state
        self._detached_counts: dict[SessionFile, int] = {}
        # drafts of detached commands that have ended while another command held the session
        self._detached_drafts: dict[SessionFile, PendingDraft] = {}
        self._pool = ShellPool()
        # unneeded drafts (files with the saved state of a shell) that will be deleted
        self._discarded: set[tuple[SessionFile, str]] = set()
        self._cancel_setup = CancelToken()
        self._worker = Worker()
        self._setup_cache = SetupCache(lambda plan: run(plan, self._cancel_setup), self._worker)
        _all.add(self)

    def read_cwd(self, place: str, key: str, seconds: float = 0.1) -> tuple[bytes | None, bool]:
        """Return the working directory of a session's shell, and whether it is certain that no
        running command will change it. `read_cwd` returns None in place of the directory if the
        session does not exist yet. A contract (tool dialect) needs the directory of the session's
        shell to plan a command, for example to resolve a relative `cwd`. Wait at most `seconds`
        until the state of a shell that has exited is saved."""
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
                # A saver (a forked copy of the shell) is still writing the state of the shell that
                # has just exited.
                time.sleep(_POLL_INTERVAL)
        except OSError:
            return None, True

    def _read_ledger(self, file: SessionFile) -> tuple[Ledger | None, bool]:
        """Return the session's ledger (its stored name, directory and status), and whether a
        running command of this or another process may still change it. `_read_ledger` returns None
        in place of the ledger while a forked copy of the shell is still saving the shell's state.
        Raises OSError."""
        if self._lease_counts.get(file) or not file.lock():
            return file.read_ledger(), True
        try:
            return file.apply_pending_draft(file.read_ledger()), False
        finally:
            file.unlock()

    def acquire(
        self, plan: Plan, spawner: Spawner, mark: Tag | None, loop: EventLoop, again: Callback
    ) -> tuple[Child, SessionLease] | None:
        """Start the plan's command in a shell of its session; return the shell and a lease, the
        command's hold on the session. If the session is not ready yet, return None and set a timer
        that calls `again`, so that the caller retries. Raises Refused, SessionUnavailable."""
        session = plan.session
        assert session is not None
        try:
            with self._lock:
                file = self._open_file(session.workspace_key, session.key)
                alone = not self._lease_counts.get(file)
                locked = alone and file.lock()
                ledger = None
                if locked:
                    self._apply_detached(file)
                if locked or not alone:
                    ledger = file.apply_pending_draft(file.read_ledger())
                elif session.read_only:
                    # A command that does not change the session's state does not wait for the
                    # session's lock.
                    ledger = file.read_ledger()
                state = None if ledger is None else self._initial_state(plan, session, file, ledger)
                begins = ledger is not None and state is not BEING_READ
                if locked and not (begins and not session.read_only):
                    file.unlock()
                if ledger is None or not begins:
                    self._retry_later(file, loop, again)
                    return None
                self._retry_intervals.pop(file, None)
                if session.read_only:
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
        """Return the state that the session's next shell restores: the saved state, or, in a new
        session, the user's set-up (what the user's shell startup files define). `_initial_state`
        returns BEING_READ while nacre is still reading the user's shell startup files; the caller
        must then retry. Raises OSError."""
        return file.read_state(ledger) if ledger.state else self._setup_cache.state(plan, session)

    def is_reading_setup(self, plan: Plan) -> bool:
        """Return whether nacre is still reading the user's shell startup files for the plan's
        session."""
        return plan.session is not None and self._setup_cache.is_reading(plan.session)

    def release(self, file: SessionFile) -> None:
        """Release one command's hold on a session, after the command has ended or was detached. The
        session is unlocked when the last of its running commands releases it."""
        with self._lock:
            users = self._lease_counts.pop(file, 0) - 1
            if users > 0:
                self._lease_counts[file] = users
                return
            with suppress(OSError):
                self._apply_detached(file)
            file.unlock()
            for key, other in [*self._files.items()][:-_MAX_OPEN_FILES]:
                # If more than `_MAX_OPEN_FILES` sessions have open files, the files of idle
                # sessions are closed, and reopened on demand.
                if other not in self._lease_counts and other not in self._detached_counts:
                    del self._files[key]
                    self._retry_intervals.pop(other, None)
                    other.close()

    def hold_detached(self, file: SessionFile, *, held: bool) -> None:
        """Keep the files of a session open while a detached command may still save its state."""
        with self._lock:
            count = self._detached_counts.pop(file, 0) + (1 if held else -1)
            if count > 0:
                self._detached_counts[file] = count

    def save_detached(self, file: SessionFile, pending: PendingDraft) -> bool:
        """Make the draft of a detached command that has ended the session's next state; return
        False if a later command has used the session. While another command, which cannot change
        the state, holds the session, the draft waits until that command ends."""
        try:
            with self._lock:
                if file.is_removed or file.read_ledger().detached_draft != pending.draft_id:
                    return False
                self._detached_drafts[file] = pending
                if self._try_save_detached(file) is None:
                    self._worker.submit(lambda: self._save_when_free(file))
                return True
        except (OSError, ValueError):  # the session was removed
            return False

    def forget_detached(self, file: SessionFile, draft_id: str) -> bool:
        """Note that a detached command has ended without a saved state; return False if a later
        command has used the session."""
        try:
            with self._lock:
                ledger = file.read_ledger()
                if file.is_removed or ledger.detached_draft != draft_id:
                    return False
                # While another command holds the session, the note stays: it does no harm.
                if not self._lease_counts.get(file) and file.lock():
                    try:
                        file.write_ledger(
                            msgspec.structs.replace(ledger, detached_draft="", detached_run="")
                        )
                    finally:
                        file.unlock()
                return True
        except (OSError, ValueError):  # the session was removed
            return False

    def _try_save_detached(self, file: SessionFile) -> bool | None:
        """Save the waiting draft of a detached command, if there is one; return None if the session
        is held by another command."""
        if file not in self._detached_drafts:
            return False
        if self._lease_counts.get(file) or not file.lock():
            return None
        try:
            self._apply_detached(file)
            return True
        finally:
            file.unlock()

    def _apply_detached(self, file: SessionFile) -> None:
        """Save the waiting draft of a detached command in a session that this process has locked,
        unless a later command has used the session. Raises OSError."""
        pending = self._detached_drafts.pop(file, None)
        if pending is None:
            return
        ledger = file.read_ledger()
        if ledger.detached_draft == pending.draft_id:
            file.write_ledger(
                msgspec.structs.replace(ledger, pending=pending, detached_draft="", detached_run="")
            )
        else:
            self._discarded.add((file, pending.draft_id))

    def _save_when_free(self, file: SessionFile) -> None:
        """Retry while a command of another process holds the session."""
        end = time.monotonic() + _SAVE_TIMEOUT
        while time.monotonic() < end and not self._closed:
            with suppress(OSError, ValueError), self._lock:
                if self._try_save_detached(file) is not None:
                    return
            time.sleep(_SLOWEST_RETRY)

    def _retry_later(self, file: SessionFile, loop: EventLoop, again: Callback) -> None:
        pause = self._retry_intervals.get(file, _FIRST_RETRY)
        self._retry_intervals[file] = min(2 * pause, _SLOWEST_RETRY)
        loop.call_later(pause, again)

    def _open_file(self, place: str, key: str) -> SessionFile:
        """Return the open files of a session; open them only if they are not open yet. Raises
        OSError."""
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
            if session.name and not session.read_only:
                # Other processes find a new session by the name in its ledger file, so this file
                # is written before the command starts.
                file.write_ledger(ledger)
        spec = _shell_spec(_in_session_cwd(plan, session, ledger), session, ledger, state)
        stands = ledger.directory or session.cwd_when_decided
        # The state after a session's first command is always saved, because the session keeps the
        # environment and the directory of its first command.
        plain = session.read_only or (bool(ledger.state) and _keeps_state(plan, session, state))
        start = _start_directory(plan, session, stands)
        ledger, errexit = _note_errexit(ledger, state)
        taken_from = ""
        if ledger.detached_draft and not plain:
            # From now on, the state of this command counts, not that of the detached command.
            taken_from = ledger.detached_run
            ledger = msgspec.structs.replace(ledger, detached_draft="", detached_run="")
            file.write_ledger(ledger)
        file.note_use(time.time())
        while True:
            shell = self._pool.take(spec) if plan.stdin is None else None
            ready = shell is not None
            shell = shell or start_prewarmed(spec, spawner, file)
            call = bash_code.build_call(
                draft=None if plain else os.fsencode(file.draft_path(shell.draft_id)),
                mark=shell.draft_id.encode(),
                status=ledger.status,
                seen=state is not None and b"CHLD" in state.traps,
                directory=start.path,
                home=stands if plan.command.cwd_given or start.is_fallback else None,
                root=session.cwd_when_decided if session.fixed_cwd else None,
                env=plan.command.call_env,
                traps=not plain and _may_trap(plan.command.script, state),
                own_trap=not plain and _may_set_exit_trap(plan, state),
            )
            try:
                child = shell.run(call, _select_script(plan, state), mark)
            except OSError:  # the prewarmed shell has exited without running the script
                end_prewarmed(shell)
                if not ready:
                    raise
            else:
                lost = ledger.lost
                ledger = msgspec.structs.replace(ledger, lost=False)
                return child, SessionLease(
                    self,
                    file,
                    ledger,
                    shell.draft_id,
                    plan,
                    unchanging=plain,
                    lost=lost,
                    moved=(stands, start.path)
                    if start.is_fallback and not session.move_noted
                    else None,
                    errexit=errexit,
                    taken_from=taken_from,
                )

    # Methods with which the worker thread starts prewarmed shells and deletes unneeded drafts
    # (files with a saved shell state).

    def prepare(
        self, plan: Plan, file: SessionFile, savers: list[int], unwanted: str | None
    ) -> None:
        """Start prewarmed shells in the background, after a command of the session has ended.
        Before the worker thread starts a shell, it waits until the processes in `savers` have saved
        the session's state and exited. If `unwanted` is not None, it is the id of an unneeded draft
        (a file with a saved shell state), and the draft is deleted."""
        if unwanted is not None:
            self._discarded.add((file, unwanted))
        if self._prewarm and not self._closed:
            self._worker.submit(lambda: self._prepare(plan, file, savers))

    def discard(self, file: SessionFile, mark: str, savers: list[int]) -> None:
        """Delete an unneeded draft (a file with a saved shell state) after all processes in
        `savers` have exited, because these processes may still write the draft."""
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
                    spawner = self._spawner
                    if state is BEING_READ or spawner is None or self._pool.has_enough(spec):
                        return
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
        """Process ids of all prewarmed shells of this engine."""
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
        """Drop all shells, files and leases in a forked child, because they belong to the parent
        process."""
        self._lock = threading.RLock()
        self._worker.after_fork()
        self._pool.after_fork()
        while self._files:
            self._files.popitem()[1].close()
        self._lease_counts.clear()


def _shell_spec(
    plan: Plan, session: Session, ledger: Ledger, state: ShellState | None
) -> ShellSpec:
    # The initial state of a new session depends on the session's directory, so the name of the
    # initial state includes the directory.
    name = (
        ""
        if state is None
        else ledger.state or f"+{session.setup_signature} {session.cwd_when_decided!r}"
    )
    return ShellSpec(plan, session.key, name, state)


def _note_errexit(ledger: Ledger, state: ShellState | None) -> tuple[Ledger, bool]:
    """Return the ledger with the note that a reply mentions `set -e`, and whether the reply to this
    command must mention it."""
    errexit = state is not None and b"errexit" in state.set
    if errexit == ledger.errexit_noted:
        return ledger, False
    return msgspec.structs.replace(ledger, errexit_noted=errexit), errexit


def _select_script(plan: Plan, state: ShellState | None) -> bytes:
    """Return the script for bash. The code that reports how pipelines have exited is left out in a
    session that could notice the code: by its traps, functions or aliases, or by the options
    `set -a` and `set -v`."""
    command = plan.command
    if command.reporting_script and state is not None:
        notices = (
            state.traps
            or not {b"allexport", b"verbose"}.isdisjoint(state.set)
            or pipeline_report.has_special_variable(state.functions + state.aliases)
        )
        return command.script if notices else command.reporting_script
    return command.reporting_script or command.script


def _keeps_state(plan: Plan, session: Session, state: ShellState | None) -> bool:
    stays = plan.command.cwd_given or plan.command.cwd == session.cwd_when_decided
    return (stays or session.fixed_cwd) and is_unchanging(plan.command.script, state)


def _may_trap(script: bytes, state: ShellState | None) -> bool:
    """Return whether a script may change the traps for INT or QUIT. If `_may_trap` wrongly
    returns True, the only effect is that saving the shell's state takes longer."""
    if _MAY_TRAP.search(script):
        return True
    if state is None:
        return False
    if b"trap" in state.aliases:
        return True
    return b"trap" in state.functions and any(name in script for name in state.names)


def _may_set_exit_trap(plan: Plan, state: ShellState | None) -> bool:
    """Return whether a script may use `trap` for an EXIT trap or a list of traps, itself or in a
    function of the session. A script or a session with traps on DEBUG, ERR or RETURN is left alone,
    because the function `trap`, which nacre defines for the script, would trigger or hide them."""
    text = plan.command.script
    if state is not None and any(name in text for name in state.names):
        text += b"\n" + state.functions
    if b"trap" not in text or _NO_TRAP_FUNCTION.search(text):
        return False
    if b"POSIXLY_CORRECT" in plan.command.call_env:
        return False
    if state is None:
        return True
    has_own = b"trap" in state.names or b"alias trap=" in state.aliases or state.posix is not None
    return not has_own and not any(name in state.traps for name in (b"DEBUG", b"ERR", b"RETURN"))


class _StartDirectory(NamedTuple):
    path: bytes
    # Whether the session's own directory cannot be entered, so that `path` is its nearest parent.
    is_fallback: bool = False


def _start_directory(plan: Plan, session: Session, stands: bytes) -> _StartDirectory:
    """Return the directory where the command starts; `stands` is the session's directory. Raises
    Refused if neither the session's directory nor a parent of it can be entered."""
    command = plan.command
    if session.fixed_cwd or command.cwd_given or command.cwd != session.cwd_when_decided:
        return _StartDirectory(command.cwd)
    if is_enterable(stands):
        return _StartDirectory(stands)
    nearest = nearest_directory(stands)
    if nearest is None:
        raise Refused(BadDirectory(path=stands, problem=DirectoryProblem.MISSING))
    return _StartDirectory(nearest, is_fallback=True)


def _in_session_cwd(plan: Plan, session: Session, ledger: Ledger) -> Plan:
    """Return the plan with the session's directory in place of the command's own directory. A
    session's shell starts in the session's directory and enters the command's directory later."""
    places = [place for place in (session.cwd_when_decided, ledger.directory) if place]
    for place in chain(places, map(nearest_directory, places)):
        if place is not None and is_enterable(place):
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
    """Wait at most `_SAVE_TIMEOUT` seconds until a saver (a process that saves a shell's state)
    exits, and reap the saver if this process has adopted it as an orphan."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # the process that saves the shell's state has already exited
        return
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if poll.poll(_SAVE_TIMEOUT * 1000):
            with suppress(OSError):
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    finally:
        os.close(pidfd)
