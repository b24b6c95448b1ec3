"""Session files: what the shells of a session hand on to each other.

    sessions/<workspace>/<key>/ledger    who it is, and what is known of it; locked while in use
    sessions/<workspace>/<key>/state     what the next shell shall know
    sessions/drafts/<mark>               what a shell that ends is just writing

A shell that ends leaves a draft, written by a copy of it that nobody waits for; the ledger names
it. Whoever comes next makes a state of it: a draft counts only when it was written to its end.
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

from nacre import proc
from nacre.shell import state as states
from nacre.shell.state import State
from nacre.store.home import home, open_private, private_directory, replace, safe_home

_MOST: Final = 64 * 1024  # bytes of a ledger
_MOMENT: Final = 0.0005


def new_mark() -> str:
    """A word that nobody can know before it is given."""
    return os.urandom(12).hex()


class Pending(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A draft that is being written, or was."""

    mark: str
    # Variables that the call alone had, and what they are where no state says so.
    spared: dict[bytes, bytes | None] = {}


class Ledger(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str = ""  # as people call it; without one it belongs to one caller alone
    contract: str = ""
    made: float = 0.0
    state: str = ""  # the mark of the draft that became the state; none yet
    directory: bytes = b""  # where its shell stands
    status: int = 0  # of its last command
    pending: Pending | None = None


_NEW: Final = Ledger()
_decode = msgspec.json.Decoder(Ledger).decode
_encode = msgspec.json.Encoder().encode


class SessionFile:
    """One session, as a process has it open."""

    _fd = -1
    _state: State | None = None
    _known = ""  # the mark of that state

    def __init__(self, place: str, key: str) -> None:
        """Raises OSError."""
        self.place, self.key = place, key
        at = safe_home()
        self.directory = private_directory(f"{at}/sessions/{place}/{key}")
        self._drafts = f"{at}/sessions/drafts"
        self._fd = open_private(f"{self.directory}/ledger", os.O_RDWR | os.O_CREAT)

    def lock(self) -> bool:
        """Whether nobody else has it now; then we do."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    @contextmanager
    def locked(self, seconds: float) -> Iterator[bool]:
        """Whether we have it, at the latest after so long."""
        end = time.monotonic() + seconds
        while not (got := self.lock()) and time.monotonic() < end:
            time.sleep(_MOMENT)
        try:
            yield got
        finally:
            if got:
                self.unlock()

    @property
    def gone(self) -> bool:
        """Whether somebody has removed it, and another of that name may have taken its place."""
        return os.fstat(self._fd).st_nlink == 0

    def ledger(self) -> Ledger:
        text = os.pread(self._fd, _MOST, 0)
        try:
            return _decode(text) if text else _NEW
        except msgspec.MsgspecError:
            return _NEW  # cut off, by a full disk or a fall of the machine

    def write(self, ledger: Ledger) -> None:
        """Raises OSError."""
        text = _encode(ledger)
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))

    def state(self, ledger: Ledger) -> State | None:
        """What its next shell shall know; None: it is a new one."""
        if not ledger.state:
            return None
        if ledger.state != self._known:
            try:
                with open(f"{self.directory}/state", "rb") as file:
                    self._state = msgspec.msgpack.decode(file.read(), type=State)
            except (OSError, msgspec.MsgspecError):
                return None
            self._known = ledger.state
        return self._state

    def draft(self, mark: str) -> str:
        """Two private files, for what a shell will say as it ends. Raises OSError."""
        private_directory(self._drafts)
        path = f"{self._drafts}/{mark}"
        for each in (path, f"{path}.traps"):
            os.close(open_private(each, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        return path

    def path(self, mark: str) -> str:
        return f"{self._drafts}/{mark}"

    def forget(self, mark: str) -> None:
        for each in (self.path(mark), f"{self.path(mark)}.traps"):
            with suppress(OSError):
                os.unlink(each)

    def settle(self, ledger: Ledger) -> Ledger | None:
        """Make a state of the last draft. None: it is still being written. Raises OSError."""
        pending = ledger.pending
        if pending is None:
            return ledger
        draft = _read(self.path(pending.mark))
        mark = pending.mark.encode()
        if not draft.endswith(b"#%b end\n" % mark):
            if proc.writers(self.path(pending.mark)):
                return None
            draft = _read(self.path(pending.mark))  # it may have ended meanwhile
        before = self.state(ledger)
        made = states.read(
            draft,
            _read(f"{self.path(pending.mark)}.traps") or None,
            mark,
            before=before,
            given={name: value for name, value in pending.spared.items() if value is not None},
            spared=pending.spared,
        )
        ledger = msgspec.structs.replace(ledger, pending=None)
        if made is not None:
            ledger = msgspec.structs.replace(ledger, status=made.status)
            made = msgspec.structs.replace(made, status=0)
        if made is not None and made != before:
            ledger = msgspec.structs.replace(ledger, state=pending.mark, directory=made.directory)
            replace(f"{self.directory}/state", msgspec.msgpack.encode(made))
            self._state, self._known = made, pending.mark
        self.write(ledger)
        return ledger

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def forget(place: str, key: str) -> None:
    """It is over; what is still being written about it is nobody's."""
    with suppress(OSError):
        shutil.rmtree(f"{home()}/sessions/{place}/{key}", ignore_errors=True)


def listed(place: str) -> list[tuple[str, Ledger, float]]:
    """The sessions of a workspace: key, ledger and when it was used last, the newest first."""
    found = []
    with suppress(OSError), os.scandir(f"{home()}/sessions/{place}") as entries:
        for entry in entries:
            path = f"{entry.path}/ledger"
            with suppress(OSError, msgspec.MsgspecError):
                text = _read(path)
                if text:
                    found.append((entry.name, _decode(text), os.stat(path).st_mtime))
    return sorted(found, key=lambda each: -each[2])
