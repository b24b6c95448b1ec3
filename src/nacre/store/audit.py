"""The audit log: one JSON line a call, in `audit.jsonl` of the state directory.

Who called what and how it ended; never what it printed. Lines are appended with one write each,
so many processes may share the file. A log that cannot be written is no reason to refuse a
command: the trouble is kept for whoever asks.
"""

import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from weakref import WeakSet

import msgspec

from nacre.store.home import home, private_directory


class Audit:
    """The log of one tool, opened at its first line and kept open."""

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._fd: int | None = None
        self._lock = threading.Lock()
        self._closed = False
        _audits.add(self)
        self.problem: str | None = None  # why the last line was not written

    def begin(self, line: Mapping[str, object]) -> "Line":
        """The first half of a line, made while there is time; nothing is written yet."""
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        return Line(self, _encoded({"time": moment, **line}))

    def append(self, data: bytes) -> None:
        with self._lock:
            try:
                os.write(self._file(), data)
                if self._closed:  # a call that outlived its tool: its line, and no open file
                    self._close()
            except OSError as error:
                self.problem = f"the audit log could not be written: {error}"
            else:
                self.problem = None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._close()

    def forked(self) -> None:
        """We are in a fork of our host: whoever held the lock is not here."""
        self._lock = threading.Lock()

    def __del__(self) -> None:
        self._close()

    def _file(self) -> int:
        if self._fd is not None and not self._is_there(self._fd):
            self._fd = None
        if self._fd is None:
            self._fd = _open(self._directory or home())
            self._identity = os.fstat(self._fd)
        return self._fd

    def _is_there(self, fd: int) -> bool:
        """Whether this is still our file, and still has a name; without one it is closed."""
        try:
            status = os.fstat(fd)
        except OSError:
            return False
        if not os.path.samestat(status, self._identity):
            return False  # our host closed everything, and the number is somebody else's now
        if status.st_nlink == 0:
            os.close(fd)  # somebody removed the file: begin a new one
            return False
        return True

    def _close(self) -> None:
        if self._fd is not None and self._is_there(self._fd):
            os.close(self._fd)
        self._fd = None


_audits: WeakSet[Audit] = WeakSet()


def _forked() -> None:
    for audit in list(_audits):
        audit.forked()


os.register_at_fork(after_in_child=_forked)


class Line:
    """A line that waits for its end."""

    def __init__(self, audit: Audit, start: bytes) -> None:
        self._audit = audit
        self._start = start

    def end(self, rest: Mapping[str, object]) -> None:
        self._audit.append(self._start[:-1] + b"," + _encoded(rest)[1:] + b"\n")


def _encoded(line: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:  # half a surrogate pair in a command that was refused
        import json

        return json.dumps(line).encode()


def _open(directory: str) -> int:
    path = f"{private_directory(directory)}/audit.jsonl"
    # Not blocking: whatever lies there, a log is no reason to hang.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    return os.open(path, flags, 0o600)
