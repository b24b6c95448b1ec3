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
from nacre.digest import session_key
from nacre.shell import state as states
from nacre.shell.state import State
from nacre.store.home import home, open_private, private_directory, replace, safe_home

_MOMENT: Final = 0.0005
_PATIENCE: Final = 1.0  # seconds for somebody else's command
_SOON: Final = 0.2  # and for who only looks
_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR


def new_mark() -> str:
    """A word that nobody can know before it is given."""
    return os.urandom(12).hex()


class Pending(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A draft that is being written, or was."""

    mark: str
    # Variables that the call alone had, and what they are where no state says so.
    spared: dict[bytes, bytes | None] = {}
    status: int | None = None  # of a shell that was killed, which could not know it
    ignored: tuple[str, ...] = ()  # signals that whoever started the shell ignored


class Ledger(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str = ""  # as people call it; without one it belongs to one caller alone
    contract: str = ""
    made: float = 0.0
    state: str = ""  # the mark of the draft that became the state; none yet
    directory: bytes = b""  # where its shell stands
    status: int = 0  # of its last command
    lost: bool = False  # what that had left could not be read
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
        self._drafts = os.path.realpath(f"{at}/sessions/drafts")  # as /proc has it
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
        text = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
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

    def forget_pending(self) -> None:
        pending = self.ledger().pending
        if pending is not None:
            self.forget(pending.mark)

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
            ignored=pending.ignored,
        )
        ledger = msgspec.structs.replace(ledger, pending=None, lost=made is None)
        if made is not None:
            status = made.status if pending.status is None else pending.status
            ledger = msgspec.structs.replace(ledger, status=status)
            made = msgspec.structs.replace(made, status=0)
        if made is not None and made != before:
            ledger = msgspec.structs.replace(ledger, state=pending.mark, directory=made.directory)
            replace(f"{self.directory}/state", msgspec.msgpack.encode(made))
            self._state, self._known = made, pending.mark
        self.write(ledger)
        self.forget(pending.mark)
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


class SessionProblem(Exception):
    """What was asked of a session cannot be done; why, as a sentence."""


class Known(Struct, frozen=True, kw_only=True):
    """A session as others see it."""

    place: str
    key: str
    name: str
    contract: str
    made: float
    used: float  # when, the last time
    directory: bytes
    state: State | None


def forget(place: str, key: str) -> None:
    """It is over, and so is what is still being written about it."""
    at = f"{home()}/sessions/{place}/{key}"
    with suppress(OSError):
        if os.path.isdir(at):
            file = SessionFile(place, key)
            file.forget_pending()
            file.close()
        shutil.rmtree(at, ignore_errors=True)


def listed(place: str) -> list[Known]:
    """The sessions of a workspace that have a name, those that were used last first."""
    found = []
    with suppress(OSError), os.scandir(f"{home()}/sessions/{place}") as entries:
        for entry in entries:
            with suppress(OSError):
                known = _known(place, entry.name)
                if known.name:
                    found.append(known)
    return sorted(found, key=lambda each: -each.used)


def _known(place: str, key: str) -> Known:
    """Raises OSError."""
    used = os.stat(f"{home()}/sessions/{place}/{key}/ledger").st_mtime
    file = SessionFile(place, key)
    try:
        with file.locked(_SOON) as got:
            settled = _settled(file) if got else file.ledger()
        os.utime(f"{file.directory}/ledger", (used, used))  # to look at it is not to use it
        return Known(
            place=place,
            key=key,
            name=settled.name,
            contract=settled.contract,
            made=settled.made,
            used=used,
            directory=settled.directory,
            state=file.state(settled),
        )
    finally:
        file.close()


def _settled(file: SessionFile) -> Ledger:
    """When whoever writes it down has done so; but not for long."""
    end = time.monotonic() + _PATIENCE
    while (ledger := file.settle(file.ledger())) is None:
        if time.monotonic() > end:
            return file.ledger()
        time.sleep(_MOMENT)
    return ledger


@contextmanager
def _alone_with(known: Known) -> Iterator[tuple[SessionFile, Ledger]]:
    """Nobody else has it meanwhile. Raises SessionProblem, OSError."""
    file = SessionFile(known.place, known.key)
    try:
        with file.locked(_PATIENCE) as got:
            if not got:
                raise SessionProblem(
                    f"session {known.name} runs a command; wait until that has ended, or end it"
                )
            yield file, _settled(file)
    finally:
        file.close()


def reset(known: Known) -> None:
    """Have it begin anew; its name stays. Raises SessionProblem, OSError."""
    with _alone_with(known) as (file, ledger):
        file.forget_pending()
        file.write(Ledger(name=ledger.name, contract=ledger.contract, made=time.time()))
        with suppress(FileNotFoundError):
            os.unlink(f"{file.directory}/state")


def remove(known: Known) -> None:
    """Raises SessionProblem, OSError."""
    with _alone_with(known) as (file, _):
        file.forget_pending()
        shutil.rmtree(file.directory)


def fork(known: Known, name: str) -> Known:
    """Another session that begins where this one is now. Raises SessionProblem, OSError."""
    kind = known.key.partition("-")[2]
    key = session_key(known.contract, name, kind)
    with _alone_with(known) as (file, ledger):
        new = SessionFile(known.place, key)
        try:
            with new.locked(0.0) as got:
                if not got or new.ledger().made:
                    raise SessionProblem(
                        f"there is a session {name} already; remove it first, or take another name"
                    )
                with suppress(FileNotFoundError):
                    shutil.copy2(f"{file.directory}/state", f"{new.directory}/state")
                    os.chmod(f"{new.directory}/state", 0o600)
                new.write(
                    msgspec.structs.replace(ledger, name=name, made=time.time(), pending=None)
                )
        finally:
            new.close()
    return _known(known.place, key)


def forget_old(before: float, seconds: float) -> None:
    """Sessions that nobody has used since; those without a name, drafts and what else is only good
    for a while go sooner. What there is no time for is left for the next one who looks."""
    end, at, now = time.monotonic() + seconds, home(), time.time()
    for path in _entries(f"{at}/sessions"):
        if path.endswith("/drafts"):
            _unlink_old(path, now - _HOUR, end)
            continue
        for session in _entries(path):
            if time.monotonic() > end:
                return
            _forget_if_old(os.path.basename(path), os.path.basename(session), before, now)
    _unlink_old(f"{at}/snapshots", before, end)


def _forget_if_old(place: str, key: str, before: float, now: float) -> None:
    with suppress(OSError):
        used = os.stat(f"{home()}/sessions/{place}/{key}/ledger").st_mtime
        if used >= now - _DAY:
            return
        known = _known(place, key)
        if used < before or not known.name:
            remove(known)


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
