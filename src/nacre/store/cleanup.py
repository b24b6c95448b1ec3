"""Cleanup of the store: deletes run directories and journal files beyond a maximum age or size.

A process that writes a file of the store holds a lock on the file, and the cleanup keeps locked
files; the kernel releases the lock when the process dies. Several processes may clean up the store
at once, and a process ignores entries that another process has already deleted.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import Struct

from nacre.model.plan import GIB
from nacre.store.state_dir import state_dir

_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR


class StoreLimits(Struct, frozen=True, kw_only=True):
    """Limits of the store (the data of past runs): maximum age in days and total size in bytes; the
    newest entries are kept."""

    days: float = 14.0
    size: int = 10 * GIB


DEFAULT_LIMITS: Final = StoreLimits()


class _Entry(NamedTuple):
    modified: float
    path: str
    size: int


def clean_up(bounds: StoreLimits, *, seconds: float = 60.0, now: float | None = None) -> int:
    """Delete the oldest entries of the store until its limits are met, and return how many were
    deleted.

    Entries of the store that are in use or cannot be deleted are kept. The cleanup stops after
    `seconds`, not counting the time for listing the entries; the next cleanup deletes the remaining
    entries.
    """
    moment = time.time() if now is None else now
    found = sorted(_list_entries(state_dir()))
    end = time.monotonic() + seconds
    oldest, total, removed = moment - bounds.days * _DAY, sum(each.size for each in found), 0
    for each in found:
        enough = each.modified >= oldest and total <= bounds.size
        if enough or time.monotonic() > end:
            break
        if moment - each.modified < _HOUR:
            # A stored run that is younger than an hour is kept despite the size limit, because a
            # caller may be about to read it.
            continue
        if _remove(each.path):
            total -= each.size
            removed += 1
    return removed


def _list_entries(home: str) -> Iterator[_Entry]:
    places = [*_entries(f"{home}/runs")]
    for workspace in _entries(f"{home}/journal"):
        places += _entries(workspace.path) or [workspace]
    for entry in places:
        with suppress(OSError):  # another process may have deleted the entry of the store
            status = entry.stat(follow_symlinks=False)
            # The file `output` has nearly all the bytes of a run's directory.
            output = _stat(f"{entry.path}/output") if entry.is_dir() else None
            changed = output.st_mtime if output else status.st_mtime
            blocks = status.st_blocks + (output.st_blocks if output else 0)
            yield _Entry(changed, entry.path, blocks * 512)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _entries(path: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []


def _remove(path: str) -> bool:
    if os.path.isdir(path):
        if any(_is_in_use(entry.path) for entry in _entries(path)):
            return False
        import shutil  # importing shutil takes 2.5 ms, and most processes delete nothing

        shutil.rmtree(path, ignore_errors=True)
    elif _is_in_use(path):
        return False
    else:
        with suppress(OSError):
            os.unlink(path)
    return not os.path.lexists(path)


def _is_in_use(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
