"""Session files: the state that one shell of a session passes on to the next shell.

    sessions/<workspace>/<key>/ledger    name and status of the session; locked while in use
    sessions/<workspace>/<key>/state     shell state that the next shell restores
    sessions/drafts/<mark>               shell state that a saver is writing

When a session's shell ends, a forked copy of it (the saver) writes the shell's state to a file (the
draft), and no caller waits for the saver. The session's ledger file contains the id of the draft
(the file with the ended shell's state), and the next process that uses the session converts the
draft to the session's saved state. A draft file is valid only if the saver (the process that writes
the shell's state) has written it completely.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
from msgspec import Struct

from nacre.model.ids import session_key
from nacre.procfs import processes
from nacre.shell_state import state as states
from nacre.shell_state.state import ShellState
from nacre.store.state_dir import (
    make_private_directory,
    open_private,
    private_state_dir,
    state_dir,
    write_atomically,
)

# seconds between two attempts to lock a session, or to read the draft file of its shell state
_POLL_INTERVAL: Final = 0.0005
# maximum seconds to wait for a session's lock, or until the session's shell state is completely
# written
_LOCK_TIMEOUT: Final = 1.0
_LOOK_TIMEOUT: Final = 0.02  # seconds to wait for a session's lock when the session is only listed
_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR


def new_draft_id() -> str:
    """Return a random id, which no command can guess, for the draft of a shell state."""
    return os.urandom(12).hex()


def new_report_path() -> str:
    """Return the path of a new file beside the drafts, to which a shell may write a report; an
    unread report is deleted with the old drafts. Raises OSError."""
    directory = make_private_directory(f"{private_state_dir()}/sessions/drafts")
    return f"{directory}/{new_draft_id()}.pipeline"


class PendingDraft(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"draft_id": "mark", "call_variables": "spared"},
):
    """Data about a draft: a file with the state of an ended shell, not yet converted to the
    session's saved state."""

    draft_id: str
    # Variables that were set for one tool call only, so that the session must not keep them. Each
    # value in `call_variables` is the variable's value before the tool call, or None if the
    # variable was unset or the session has a saved state.
    call_variables: dict[bytes, bytes | None] = {}
    status: int | None = None  # exit status of a killed shell, which could not save its status
    ignored: tuple[str, ...] = ()  # names of signals that the shell's parent process ignored


class Ledger(Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"created": "made"}):
    name: str = ""  # name of the session; empty: the session belongs to a single caller
    contract: str = ""
    created: float = 0.0
    state: str = ""  # id of the session's saved shell state; empty: no state yet
    directory: bytes = b""  # current directory of the session's shell
    status: int = 0  # exit status of the session's last command
    lost: bool = False  # whether the shell state saved by the last command could not be read
    pending: PendingDraft | None = None
    # whether a reply has said that `set -e` is on in the session
    errexit_noted: bool = False
    # id of the draft that a detached command of the session will write; empty: none, or a later
    # command has used the session since
    detached_draft: str = ""
    detached_run: str = ""  # id of the run of that detached command


_EMPTY_LEDGER: Final = Ledger()
_decode = msgspec.json.Decoder(Ledger).decode
_encode = msgspec.json.Encoder().encode


class SessionFile:
    """Files of one session, opened by this process."""

    def __init__(self, place: str, key: str) -> None:
        """Open the session's ledger file, and create the session's directory if it is missing.
        Raises OSError."""
        self._fd = -1
        self._state: ShellState | None = None
        self._state_id = ""  # id of the shell state that is cached in `_state`
        self.workspace_key, self.key = place, key
        at = private_state_dir()
        self.directory = make_private_directory(f"{at}/sessions/{place}/{key}")
        # Resolve symbolic links in the path of the directory for draft files, because nacre
        # searches /proc/PID/fd for a draft's path, and /proc/PID/fd shows resolved paths.
        self._drafts = os.path.realpath(f"{at}/sessions/drafts")
        self._fd = open_private(f"{self.directory}/ledger", os.O_RDWR | os.O_CREAT)

    def lock(self) -> bool:
        """Try to lock the session without waiting; return whether the lock was obtained."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    @contextmanager
    def hold_lock(self, seconds: float) -> Iterator[bool]:
        """Lock the session, waiting at most `seconds`; yield whether the lock was obtained."""
        end = time.monotonic() + seconds
        while not (got := self.lock()) and time.monotonic() < end:
            time.sleep(_POLL_INTERVAL)
        try:
            yield got
        finally:
            if got:
                self.unlock()

    @property
    def is_removed(self) -> bool:
        """Return whether the session whose files this process opened was deleted, even if a new
        session with the same name exists."""
        return os.fstat(self._fd).st_nlink == 0

    @property
    def used(self) -> float:
        """Return the Unix time at which the session was last used."""
        return os.fstat(self._fd).st_mtime

    def note_use(self, now: float) -> None:
        """Store the Unix time at which the session was last used. Raises OSError."""
        os.utime(self._fd, (now, now))

    def read_ledger(self) -> Ledger:
        text = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        try:
            return _decode(text) if text else _EMPTY_LEDGER
        except msgspec.MsgspecError:
            return _EMPTY_LEDGER  # the ledger file was cut off by a full disk or a crash

    def write_ledger(self, ledger: Ledger) -> None:
        """Replace the contents of the session's ledger file. Raises OSError."""
        text = _encode(ledger)
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))

    def read_state(self, ledger: Ledger) -> ShellState | None:
        """Return the saved state that the session's next shell restores; None if there is no
        readable state."""
        if not ledger.state:
            return None
        if ledger.state != self._state_id:
            try:
                with open(f"{self.directory}/state", "rb") as file:
                    self._state = msgspec.msgpack.decode(file.read(), type=ShellState)
            except (OSError, msgspec.MsgspecError):
                return None
            self._state_id = ledger.state
        return self._state

    def create_draft(self, mark: str) -> str:
        """Create the private files to which a shell writes its state (the draft) and its traps when
        it ends.

        Return the path of the file for the shell's state. Raises OSError.
        """
        make_private_directory(self._drafts)
        path = f"{self._drafts}/{mark}"
        for each in (path, f"{path}.traps"):
            os.close(open_private(each, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        return path

    def draft_path(self, mark: str) -> str:
        return f"{self._drafts}/{mark}"

    def remove_draft(self, mark: str) -> None:
        for each in (self.draft_path(mark), f"{self.draft_path(mark)}.traps"):
            with suppress(OSError):
                os.unlink(each)

    def remove_pending_draft(self) -> None:
        pending = self.read_ledger().pending
        if pending is not None:
            self.remove_draft(pending.draft_id)

    def apply_pending_draft(self, ledger: Ledger) -> Ledger | None:
        """Convert the draft file, to which the session's last shell wrote its state, to the
        session's saved state. Return the resulting contents of the session's ledger file.

        Return None while a process is still writing the shell's state to the draft file. Raises
        OSError.
        """
        pending = ledger.pending
        if pending is None:
            return ledger
        draft = _read_file(self.draft_path(pending.draft_id))
        mark = pending.draft_id.encode()
        if not draft.endswith(b"#%b end\n" % mark):
            if processes.find_file_writers(self.draft_path(pending.draft_id)):
                return None
            # Read the draft file again, because its writer may have completed it after the first
            # read and exited before the search for writers.
            draft = _read_file(self.draft_path(pending.draft_id))
        before = self.read_state(ledger)
        state = states.parse_draft(
            draft,
            _read_file(f"{self.draft_path(pending.draft_id)}.traps") or None,
            mark,
            before=before,
            given={
                name: value for name, value in pending.call_variables.items() if value is not None
            },
            spared=pending.call_variables,
            ignored=pending.ignored,
        )
        ledger = msgspec.structs.replace(ledger, pending=None, lost=state is None)
        if state is not None:
            status = state.status if pending.status is None else pending.status
            ledger = msgspec.structs.replace(ledger, status=status)
            state = msgspec.structs.replace(state, status=0)
        if state is not None and state != before:
            ledger = msgspec.structs.replace(
                ledger, state=pending.draft_id, directory=state.directory
            )
            write_atomically(f"{self.directory}/state", msgspec.msgpack.encode(state))
            self._state, self._state_id = state, pending.draft_id
        self.write_ledger(ledger)
        self.remove_draft(pending.draft_id)
        return ledger

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


class SessionProblem(Exception):
    """Error whose message says in a sentence why an operation on a session is not possible."""


class SessionInfo(Struct, frozen=True, kw_only=True):
    """Data of one session for a listing."""

    workspace_key: str
    key: str
    name: str
    contract: str
    created: float
    used: float  # Unix time at which the session was last used
    directory: bytes
    state: ShellState | None


def delete_session(place: str, key: str) -> None:
    """Delete the files of a session and the pending draft of its state; errors are ignored."""
    at = f"{state_dir()}/sessions/{place}/{key}"
    with suppress(OSError):
        if os.path.isdir(at):
            file = SessionFile(place, key)
            file.remove_pending_draft()
            file.close()
        shutil.rmtree(at, ignore_errors=True)


def list_sessions(place: str) -> list[SessionInfo]:
    """Return the named sessions of a workspace, the most recently used first."""
    found = []
    with suppress(OSError), os.scandir(f"{state_dir()}/sessions/{place}") as entries:
        for entry in entries:
            with suppress(OSError):
                known = _read_info(place, entry.name)
                if known.name:
                    found.append(known)
    return sorted(found, key=lambda each: -each.used)


def _read_info(place: str, key: str) -> SessionInfo:
    """Return the data of one session for a listing. Raises OSError."""
    file = SessionFile(place, key)
    try:
        with file.hold_lock(_LOOK_TIMEOUT) as got:
            used = file.used
            settled = _wait_for_ledger(file) if got else file.read_ledger()
            if got:
                file.note_use(used)  # listing a session does not count as use
        return SessionInfo(
            workspace_key=place,
            key=key,
            name=settled.name,
            contract=settled.contract,
            created=settled.created,
            used=used,
            directory=settled.directory,
            state=file.read_state(settled),
        )
    finally:
        file.close()


def _wait_for_ledger(file: SessionFile) -> Ledger:
    """Convert the draft file with the state of the session's last shell to the saved state, and
    return the session's ledger. If a process is still writing the draft file, wait at most
    `_LOCK_TIMEOUT` seconds until the file is complete."""
    end = time.monotonic() + _LOCK_TIMEOUT
    while (ledger := file.apply_pending_draft(file.read_ledger())) is None:
        if time.monotonic() > end:
            return file.read_ledger()
        time.sleep(_POLL_INTERVAL)
    return ledger


@contextmanager
def _exclusive_session(known: SessionInfo) -> Iterator[tuple[SessionFile, Ledger]]:
    """Open and lock the session for the duration of the context.

    Raises SessionProblem, OSError.
    """
    file = SessionFile(known.workspace_key, known.key)
    try:
        with file.hold_lock(_LOCK_TIMEOUT) as got:
            if not got:
                raise SessionProblem(
                    f"session {known.name} is running a command; wait for its end, or end it"
                )
            yield file, _wait_for_ledger(file)
    finally:
        file.close()


def reset_session(known: SessionInfo) -> None:
    """Delete the session's saved state but keep its name. Raises SessionProblem, OSError."""
    with _exclusive_session(known) as (file, ledger):
        file.remove_pending_draft()
        file.write_ledger(Ledger(name=ledger.name, contract=ledger.contract, created=time.time()))
        with suppress(FileNotFoundError):
            os.unlink(f"{file.directory}/state")


def remove_session(known: SessionInfo) -> None:
    """Delete the session with all its files. Raises SessionProblem, OSError."""
    with _exclusive_session(known) as (file, _):
        file.remove_pending_draft()
        shutil.rmtree(file.directory)


def fork_session(known: SessionInfo, name: str) -> SessionInfo:
    """Create a new session that starts with a copy of another session's state.

    Raises SessionProblem, OSError.
    """
    kind = known.key.partition("-")[2]
    key = session_key(known.contract, name, kind)
    with _exclusive_session(known) as (file, ledger):
        new = SessionFile(known.workspace_key, key)
        try:
            with new.hold_lock(0.0) as got:
                if not got or new.read_ledger().created:
                    raise SessionProblem(
                        f"a session {name} exists already; remove it first, or choose another name"
                    )
                with suppress(FileNotFoundError):
                    shutil.copy2(f"{file.directory}/state", f"{new.directory}/state")
                    os.chmod(f"{new.directory}/state", 0o600)
                new.write_ledger(
                    msgspec.structs.replace(ledger, name=name, created=time.time(), pending=None)
                )
        finally:
            new.close()
    return _read_info(known.workspace_key, key)


def remove_old_sessions(before: float, seconds: float) -> None:
    """Delete every session, and every snapshot of what a user's shell startup files define, that is
    older than the Unix time `before`.

    Sessions without a name are deleted one day after their last use, and drafts of shell states
    after one hour. `remove_old_sessions` stops after `seconds` seconds, and the next cleanup of the
    store deletes the remaining old files.
    """
    end, at, now = time.monotonic() + seconds, state_dir(), time.time()
    for path in _entries(f"{at}/sessions"):
        if path.endswith("/drafts"):
            _unlink_old(path, now - _HOUR, end)
            continue
        for session in _entries(path):
            if time.monotonic() > end:
                return
            _remove_if_old(os.path.basename(path), os.path.basename(session), before, now)
    _unlink_old(f"{at}/snapshots", before, end)


def _remove_if_old(place: str, key: str, before: float, now: float) -> None:
    with suppress(OSError):
        used = os.stat(f"{state_dir()}/sessions/{place}/{key}/ledger").st_mtime
        if used >= now - _DAY:
            return
        known = _read_info(place, key)
        if used < before or not known.name:
            remove_session(known)


def _unlink_old(directory: str, before: float, end: float) -> None:
    for path in _entries(directory):
        with suppress(OSError):
            if time.monotonic() < end and os.stat(path).st_mtime < before:
                os.unlink(path)


def _entries(directory: str) -> list[str]:
    try:
        return [f"{directory}/{name}" for name in os.listdir(directory)]
    except OSError:
        return []
