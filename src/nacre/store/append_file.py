"""A file of ours that is only ever appended to, by many processes and threads at once.

Opened at its first line and kept open. Each line is one write, which the kernel does at the end of
the file and in one piece. Processes do not wait for each other, so nobody who was stopped or killed
is waited for. As long as it is open it has a shared lock, by which others know that it is in use.
"""

import errno
import fcntl
import os
import stat
import threading
import time
from contextlib import suppress
from typing import Final
from weakref import WeakSet

from nacre.store.state_dir import make_private_directory, open_private

_LOOKS: Final = 20  # at a file that ends inside a line, before that counts as its end
_LOOK_INTERVAL: Final = 0.001


class AppendFile:
    """`path` may be chosen anew before each append; the file before it is closed then."""

    def __init__(self, *, lines: bool = False, max_bytes: int | None = None) -> None:
        """`lines`: an incomplete line of another process is ended first. Past `max_bytes`, the next
        append moves the file out of the way, see `rotate`."""
        self._fd: int | None = None
        self._path = ""
        self._inode = self._device = 0
        self._line_incomplete = False  # the last line is not all there
        self._busy = False
        self._closed = False  # what comes still reaches the file, which is then closed again
        self._lines = lines
        self._max_bytes = max_bytes
        # Reentrant: a signal handler may close us while its own thread appends.
        self._lock = threading.RLock()
        _all.add(self)

    def append(self, path: str, data: bytes) -> None:
        """Raises OSError. Whoever answers a call waits for this: as few steps as can be."""
        with self._lock:
            self._busy = True
            try:
                self._append(path, data)
            finally:
                self._finish()

    def append_counted(self, path: str) -> int:
        """Append one byte; where it ends is a number that nobody else gets. Raises OSError."""
        with self._lock:
            self._busy = True
            try:
                fd = self._append(path, b".")
                return os.lseek(fd, 0, os.SEEK_CUR)  # nobody else has this open file
            finally:
                self._finish()

    def _append(self, path: str, data: bytes) -> int:
        fd = self._fd
        if fd is None or path != self._path or not self._is_usable(fd):
            fd = self._open(path)
        if self._line_incomplete:
            data = b"\n" + data
        written = os.write(fd, data)
        self._line_incomplete = written < len(data)
        if self._line_incomplete:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return fd

    def _finish(self) -> None:
        self._busy = False
        if self._closed:
            self._close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if not self._busy:  # else it is ours to do when we are back
                self._close()

    def after_fork(self) -> None:
        """We are in a fork of our host. Whoever held the lock is not here, and the open file is
        one with the parent's, position and all: have one of our own."""
        self._lock = threading.RLock()
        self._busy = False
        self._close()

    def __del__(self) -> None:
        self._close()

    def _open(self, path: str) -> int:
        self._close()
        fd = self._fd = _open_file(path)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            self._fd = None
            raise OSError(errno.EINVAL, f"{path} is not a file")
        self._path, self._inode, self._device = path, status.st_ino, status.st_dev
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self._line_incomplete = self._lines and _ends_inside_line(fd)
        return fd

    def _is_usable(self, fd: int) -> bool:
        """Whether this is still our file, has a name, and has room."""
        try:
            status = os.fstat(fd)
        except OSError:
            return False
        if status.st_ino != self._inode or status.st_dev != self._device:
            return False  # our host closed everything, and the number is somebody else's now
        if self._max_bytes is not None and status.st_size >= self._max_bytes:
            rotate(self._path, status)
            return False
        return status.st_nlink > 0  # else somebody removed it

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with suppress(OSError):
            status = os.fstat(fd)
            if status.st_ino == self._inode and status.st_dev == self._device:
                os.close(fd)


def _ends_inside_line(fd: int) -> bool:
    """Whether a process was killed, or the disk was full, in the middle of a line. The kernel shows
    the pages of a long line one by one, so a line that is just being written looks the same for a
    moment."""
    for _ in range(_LOOKS):
        size = os.fstat(fd).st_size
        if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
            return False
        time.sleep(_LOOK_INTERVAL)
    return True


KEPT_ROTATIONS = 4  # files that a rotation keeps


def rotate(path: str, status: os.stat_result) -> None:
    """Move a full file out of the way: path.1 is the newest of the old ones.

    Whoever still has the old file open appends there once more, and comes here; only who finds
    it at its own place moves it, and only one of those, by the directory that he makes.
    """
    lock = f"{path}.rotating"
    try:
        os.mkdir(lock, 0o700)
    except OSError:
        _remove_if_stale(lock)
        return
    with suppress(OSError):  # then the file goes on growing, and the next one tries again
        if os.path.samestat(os.stat(path), status):
            for number in range(KEPT_ROTATIONS - 1, 0, -1):
                if os.path.lexists(f"{path}.{number}"):
                    os.replace(f"{path}.{number}", f"{path}.{number + 1}")
            os.replace(path, f"{path}.1")
    with suppress(OSError):
        os.rmdir(lock)


def _remove_if_stale(lock: str) -> None:
    """Somebody was killed while he rotated, which takes no time at all."""
    with suppress(OSError):
        if time.time() - os.stat(lock).st_mtime > 60:
            os.rmdir(lock)


_all: WeakSet[AppendFile] = WeakSet()


def _after_fork() -> None:
    for each in list(_all):
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _open_file(path: str) -> int:
    make_private_directory(os.path.dirname(path))
    # Not blocking: whatever lies there, a log is no reason to hang.
    return open_private(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK)
