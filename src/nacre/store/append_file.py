"""Append-only file that many processes and threads write to at once.

The first append opens the file, and the file stays open. Each line is written by one write(2), so
that the kernel appends the line to the file in one piece. Processes that append to the file do not
wait for each other, so a stopped or killed process blocks no other process. A process that has an
append-only file open holds a shared lock on the file, which tells other processes that the file is
in use.
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

# number of checks after which a last line without a newline counts as incomplete
_LOOKS: Final = 20
_LOOK_INTERVAL: Final = 0.001  # seconds between two checks of a file's last line


class AppendFile:
    """Append-only file; an append that names another path closes the open file and opens the file
    at that path."""

    def __init__(self, *, lines: bool = False, max_bytes: int | None = None) -> None:
        """Create an `AppendFile` without opening a file; the first append opens the file.

        If `lines` is true and the file ends inside a line (its writer was killed, or the disk was
        full), the next append starts with a newline. If the file has `max_bytes` bytes or more, the
        next append renames the file (see `rotate`) and writes to a new file.
        """
        self._fd: int | None = None
        self._path = ""
        self._inode = self._device = 0
        self._line_incomplete = False  # whether the end of the file's last line is missing
        self._busy = False
        self._closed = False  # after `close`, each append opens the file and closes it
        self._lines = lines
        self._max_bytes = max_bytes
        # An `AppendFile` has a reentrant lock, because a signal handler may call `close` while the
        # interrupted thread is inside `append`.
        self._lock = threading.RLock()
        _all.add(self)

    def append(self, path: str, data: bytes) -> None:
        """Append the data to the file with one write(2). Raises OSError.

        `AppendFile.append` must be fast, because the response to a tool call waits for it.
        """
        with self._lock:
            self._busy = True
            try:
                self._append(path, data)
            finally:
                self._finish()

    def append_counted(self, path: str) -> int:
        """Append one byte to the file and return the file position after the byte, a number that no
        other call returns. Raises OSError."""
        with self._lock:
            self._busy = True
            try:
                fd = self._append(path, b".")
                # the file offset after the byte; no other process moves this descriptor's offset
                return os.lseek(fd, 0, os.SEEK_CUR)
            finally:
                self._finish()

    def _append(self, path: str, data: bytes) -> int:
        fd = self._fd
        if fd is None or path != self._path or not self._is_usable(fd):
            fd = self._open(path)
            if not self._is_usable(fd):  # the file is full: `_is_usable` has renamed it
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
            if not self._busy:  # a call of `append` that is still running will close the file
                self._close()

    def after_fork(self) -> None:
        """Make an `AppendFile` usable in a child process that the host program forked.

        A forked child gets a new lock, because the thread that held the parent's lock may not exist
        in the child. A forked child shares the open file and its position with the parent, so the
        child closes its descriptor and opens the file again at its next append.
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
        """Return whether an append may write to `fd`: the descriptor still refers to the file that
        was opened, and the file is neither removed nor full.

        An append must not use a file that was removed. An append that finds the file full renames
        the file (see `rotate`) and opens a new one.
        """
        try:
            status = os.fstat(fd)
        except OSError:
            return False
        if status.st_ino != self._inode or status.st_dev != self._device:
            return False  # the host closed `fd`, and the same number now refers to another file
        if self._max_bytes is not None and status.st_size >= self._max_bytes:
            rotate(self._path, status)
            return False
        return status.st_nlink > 0  # the link count of a removed file is 0

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with suppress(OSError):
            status = os.fstat(fd)
            if status.st_ino == self._inode and status.st_dev == self._device:
                os.close(fd)


def _ends_inside_line(fd: int) -> bool:
    """Return whether the file's last line is incomplete: its writer was killed, or the disk was
    full.

    A last line without a newline is checked several times, because a long line looks incomplete
    for a moment while the kernel makes the line's pages visible to readers one by one.
    """
    for _ in range(_LOOKS):
        size = os.fstat(fd).st_size
        if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
            return False
        time.sleep(_LOOK_INTERVAL)
    return True


KEPT_ROTATIONS = 4  # number of renamed, older files that `rotate` keeps


def rotate(path: str, status: os.stat_result) -> None:
    """Rename a full log file to `path.1`, after moving each older file to the next number.

    A process calls `rotate` before an append if the file that it has open is full, even if that
    file was already renamed. `rotate` renames the file at `path` only if it is still the full file,
    because another process may have renamed the full file already. A lock directory makes sure that
    only one process at a time renames files.
    """
    lock = f"{path}.rotating"
    try:
        os.mkdir(lock, 0o700)
    except OSError:
        _remove_if_stale(lock)
        return
    # If a full log file cannot be renamed, it keeps growing, and the next append tries again.
    with suppress(OSError):
        if os.path.samestat(os.stat(path), status):
            for number in range(KEPT_ROTATIONS - 1, 0, -1):
                if os.path.lexists(f"{path}.{number}"):
                    os.replace(f"{path}.{number}", f"{path}.{number + 1}")
            os.replace(path, f"{path}.1")
    with suppress(OSError):
        os.rmdir(lock)


def _remove_if_stale(lock: str) -> None:
    """Remove a lock directory that is older than 60 s.

    A process keeps a lock directory only while it renames log files, which takes hardly any time,
    so a lock directory older than 60 s belongs to a process that was killed.
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
    # O_NONBLOCK, because opening a log must not hang even if the path is not a regular file.
    return open_private(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK)
