"""Looking at processes: who lives, who is whose, who carries which tag. Touches nothing.

A process is known by its pid *and* its start time: pids are used again (here after 32,768),
start times of one pid are not. Everything that disappears while we look is simply not there.
"""

import os
import resource
import threading
from contextlib import suppress
from typing import Final, NamedTuple

# Soft RLIMIT_LOCKS has had no effect since Linux 2.4.25, and is inherited by everything a process
# starts, whatever session, parent or environment that has: a place to write a tag.
RLIMIT_LOCKS: Final = 10


_PF_EXITING: Final = 0x4


class Process(NamedTuple):
    """One line of the process table."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int  # clock ticks after boot
    alive: bool  # not a zombie, nor on its way to become one


def read_process(pid: int) -> Process | None:
    """The process with this pid as it is now; a zombie is still there, and says so."""
    return _parse_stat(pid, _read_start(f"/proc/{pid}/stat", 1024))


def is_same_process(pid: int, started: int) -> bool:
    """Whether the process that had this pid and start time is still alive."""
    process = read_process(pid)
    return process is not None and process.alive and process.started == started


def _parse_stat(pid: int, line: bytes) -> Process | None:
    # The name comes second, in parentheses, and may itself hold parentheses and blanks.
    fields = line.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    state, parent, group, session = fields[:4]
    # A first thread that has ended is a zombie for as long as the others live.
    ending = state in (b"Z", b"X", b"x") or int(fields[6]) & _PF_EXITING
    return Process(
        pid,
        state.decode(),
        int(parent),
        int(group),
        int(session),
        started=int(fields[19]),
        alive=not ending or int(fields[17]) > 1,
    )


def exit_code(pid: int, started: int) -> int | None:
    """What this very process has ended with, as wait(2) has it, while its zombie is there."""
    line = _read_start(f"/proc/{pid}/stat", 1024)
    fields = line.rpartition(b")")[2].split()
    if len(fields) < 50 or fields[0] not in (b"Z", b"X") or int(fields[19]) != started:
        return None
    return int(fields[49])


def list_pids() -> list[int]:
    """Every process there is, threads not counted. Raises OSError when we cannot look."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def list_own_children() -> list[int]:
    """Our own children, zombies and adopted orphans included. Raises OSError without a way to
    look."""
    alone = threading.active_count() == 1
    threads = [str(os.getpid())] if alone else os.listdir("/proc/self/task")
    found: list[int] = []
    for thread in threads:
        try:
            fd = os.open(f"/proc/self/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # a kernel without that file, or a thread that has ended
            return [
                each.pid for each in read_all_processes().values() if each.parent == os.getpid()
            ]
        try:
            while some := os.read(fd, 65536):
                found += map(int, some.split())
        finally:
            os.close(fd)
    return found


def read_all_processes() -> dict[int, Process]:
    """All of them as they are now. Raises OSError when we cannot look: without a descriptor to see
    with, nobody seems to be there."""
    found = {}
    for pid in list_pids():
        try:
            fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        try:
            process = _parse_stat(pid, os.read(fd, 1024))
        except ProcessLookupError:
            continue
        finally:
            os.close(fd)
        if process is not None:
            found[pid] = process
    return found


class LastPid:
    """The pid that was issued last, to anybody. Kept open, since it is asked on every exit."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def read(self) -> int | None:
        try:
            if not self._fds:
                self._open()
            return int(os.pread(self._fds[0], 128, 0).rsplit(b" ", 1)[1])
        except (OSError, IndexError, ValueError):
            return None

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def __del__(self) -> None:
        self.close()

    def _open(self) -> None:
        """Hold one descriptor more than it takes: closing makes room for two, which is what looking
        around takes, whatever our host has opened meanwhile."""
        self._fds.append(os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC))
        with suppress(OSError):
            self._fds.append(os.dup(self._fds[0]))


def soft_locks(pid: int) -> int | None:
    """The soft RLIMIT_LOCKS of a process; -1 is unlimited."""
    try:
        return resource.prlimit(pid, RLIMIT_LOCKS)[0]
    except PermissionError:
        return _soft_locks_from_proc(pid)
    except OSError:
        return None


def _soft_locks_from_proc(pid: int) -> int | None:
    """The same for a process of another user, whose limits can be read but not asked for."""
    value = _word_after(b"Max file locks", _read_start(f"/proc/{pid}/limits", 4096))
    if not value:
        return None
    return int(value) if value.isdigit() else -1


def count_oom_kills() -> int:
    """How often the kernel has killed a process, since the boot and anywhere, to have memory."""
    count = _word_after(b"\noom_kill ", read_file("/proc/vmstat"))
    return int(count) if count.isdigit() else 0


def ignored_signals() -> set[int]:
    """By this process, also those that Python has no word for."""
    mask = int(_word_after(b"\nSigIgn:", read_file("/proc/self/status")) or b"0", 16)
    return {number for number in range(1, 65) if mask >> number - 1 & 1}


def is_thread(pid: int) -> bool:
    """Whether this number is a thread of a process that has another number."""
    tgid = _word_after(b"\nTgid:", _read_start(f"/proc/{pid}/status", 512))
    return tgid not in (b"", str(pid).encode())


def is_descendant(pid: int, ancestor: int) -> bool:
    """Whether the parent chain of a process leads to this ancestor."""
    seen = set()
    while pid > 1 and pid not in seen:
        if pid == ancestor:
            return True
        seen.add(pid)
        process = read_process(pid)
        if process is None:
            return False
        pid = process.parent
    return False


def command_line(pid: int) -> str:
    """What a person would call this process: its arguments, or its name in brackets."""
    for name, shown in (("cmdline", "{}"), ("comm", "[{}]")):
        text = _read_start(f"/proc/{pid}/{name}", 4096).rstrip(b"\0\n").replace(b"\0", b" ")
        if text:
            return shown.format(text.decode("utf-8", "replace"))
    return "[gone]"


def is_busy(pid: int) -> bool:
    """Whether a process runs, is ready to run, or waits for a disk."""
    process = read_process(pid)
    return process is not None and process.state in ("R", "D")


def is_starting(pid: int) -> bool:
    """Whether a process is inside execve(2), and has no arguments to show yet. A process that has
    none and sleeps will not have any."""
    return not _read_start(f"/proc/{pid}/cmdline", 1) and is_busy(pid)


def writes_to_pipe(pid: int, pipes: frozenset[int]) -> bool:
    """Whether a process holds the writing end of one of these pipes, given by inode."""
    names = {f"pipe:[{inode}]" for inode in pipes}
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_read_link(pid, fd) in names and _is_writable(pid, fd) for fd in fds)


def writes_file(pid: int, path: str) -> bool:
    """Whether a process has this file open for writing."""
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_read_link(pid, fd) == path and _is_writable(pid, fd) for fd in fds)


def find_file_writers(path: str) -> list[int]:
    """Who has this file open for writing, as far as we can see."""
    real = os.path.realpath(path)
    try:
        return [pid for pid in list_pids() if writes_file(pid, real)]
    except OSError:
        return []


def _read_link(pid: int, fd: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""


def _is_writable(pid: int, fd: str) -> bool:
    flags = _word_after(b"flags:", _read_start(f"/proc/{pid}/fdinfo/{fd}", 256))
    return flags != b"" and int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _read_start(path: str, limit: int) -> bytes:
    """The beginning of a file in /proc; nothing when it is gone. Half the time of `open`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, limit)
    except OSError:
        return b""
    finally:
        os.close(fd)


def read_file(path: str) -> bytes:
    """A whole file in /proc; nothing when it is gone, or not ours to read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _word_after(label: bytes, text: bytes) -> bytes:
    words = text.partition(label)[2].split(maxsplit=1)
    return words[0] if words else b""
