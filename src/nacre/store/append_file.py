"""Append-only file that many processes and threads write to at once.

The first append opens the file, and the file stays open. Each line is one write(2), which the
kernel appends to the file in one piece. Processes do not wait for each other, so a stopped or
killed process blocks no other process. While open, the file has a shared lock. The lock tells other
processes that the file is in use.
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

_LOOKS: Final = 20  # checks before a last line without a newline counts as incomplete
_LOOK_INTERVAL: Final = 0.001  # seconds between two checks of the last line


class AppendFile:
    """Append-only file. Each append may name another path; the previous file is then closed."""

    def __init__(self, *, lines: bool = False, max_bytes: int | None = None) -> None:
        """Create the object; the first append opens the file.

        With `lines`, an append first terminates an incomplete line of another process. Once the
        file has `max_bytes` bytes, the next append renames the file, see `rotate`.
        """
        self._fd: int | None = None
        self._path = ""
        self._inode = self._device = 0
        self._line_incomplete = False  # whether the end of the file's last line is missing
        self._busy = False
        self._closed = False  # a later append still opens the file, and then closes it again
        self._lines = lines
        self._max_bytes = max_bytes
        # The lock is reentrant: a signal handler may call `close` during an append of its thread.
        self._lock = threading.RLock()
        _all.add(self)

    def append(self, path: str, data: bytes) -> None:
        """Append the data with one write(2). Raises OSError.

        The response to a call waits for this method, so it takes as few steps as possible.
        """
        with self._lock:
            self._busy = True
            try:
                self._append(path, data)
            finally:
                self._finish()

    def append_counted(self, path: str) -> int:
        """Append one byte and return the position after it. Raises OSError.

        No other append to this file gets the same position.
        """
        with self._lock:
            self._busy = True
            try:
                fd = self._append(path, b".")
                return os.lseek(fd, 0, os.SEEK_CUR)  # no other process shares this position
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
            if not self._busy:  # during an append, `_finish` closes the file instead
                self._close()

    def after_fork(self) -> None:
        """Reset the object in a child process that the host forked.

        The thread that held the lock may not exist in the child. The child shares the open file and
        its position with the parent, so the child closes it and later opens its own.
        """
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
        with suppress(OSError):  # the file system may not support locks
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self._line_incomplete = self._lines and _ends_inside_line(fd)
        return fd

    def _is_usable(self, fd: int) -> bool:
        """Return whether the descriptor still refers to this file, and an append may use it.

        The file must not have been removed. A full file is rotated and not used again.
        """
        try:
            status = os.fstat(fd)
        except OSError:
            return False
        if status.st_ino != self._inode or status.st_dev != self._device:
            return False  # the host closed this descriptor, and its number is now another file
        if self._max_bytes is not None and status.st_size >= self._max_bytes:
            rotate(self._path, status)
            return False
        return status.st_nlink > 0  # a removed file has no links

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with suppress(OSError):
            status = os.fstat(fd)
            if status.st_ino == self._inode and status.st_dev == self._device:
                os.close(fd)


def _ends_inside_line(fd: int) -> bool:
    """Return whether the last line is incomplete: its writer was killed, or the disk was full.

    The kernel makes the pages of a long line visible one by one. A line that is just being written
    therefore looks incomplete for a moment, so the check is repeated.
    """
    for _ in range(_LOOKS):
        size = os.fstat(fd).st_size
        if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
            return False
        time.sleep(_LOOK_INTERVAL)
    return True


KEPT_ROTATIONS = 4  # number of old files that a rotation keeps


def rotate(path: str, status: os.stat_result) -> None:
    """Rename a full file to `path.1`, after moving each older file to the next number.

    A process that still has the old file open calls this function before its next append. Only a
    process that finds the full file still at `path` renames it. A lock directory makes sure that
    only one process rotates at a time.
    """
    lock = f"{path}.rotating"
    try:
        os.mkdir(lock, 0o700)
    except OSError:
        _remove_if_stale(lock)
        return
    with suppress(OSError):  # after an error the file keeps growing, and the next append retries
        if os.path.samestat(os.stat(path), status):
            for number in range(KEPT_ROTATIONS - 1, 0, -1):
                if os.path.lexists(f"{path}.{number}"):
                    os.replace(f"{path}.{number}", f"{path}.{number + 1}")
            os.replace(path, f"{path}.1")
    with suppress(OSError):
        os.rmdir(lock)


def _remove_if_stale(lock: str) -> None:
    """Remove a lock directory that is older than 60 s.

    A rotation takes hardly any time, so the process that made this directory was killed.
    """
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
    # O_NONBLOCK: opening a log must not hang, even if the path is no regular file.
    return open_private(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK)
