"""Facts about processes, read from /proc: state, parent, session, run tag, open files.

No function in this module changes a process. A process is identified by its pid *and* its start
time, because the kernel reuses pids (by default after 32,768), but each process with the same pid
has another start time. A process that disappears while its files in /proc are read is treated as
absent.
"""

import os
import resource
import threading
from contextlib import suppress
from typing import Final, NamedTuple

# Number of RLIMIT_LOCKS, the resource limit that holds the run tag. The soft RLIMIT_LOCKS has had
# no effect since Linux 2.4.25. Every descendant of a process inherits its RLIMIT_LOCKS, in any
# session, with any parent and any environment.
RLIMIT_LOCKS: Final = 10


_PF_EXITING: Final = 0x4


class Process(NamedTuple):
    """One entry of the process table."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int  # start time of the process, in clock ticks after boot
    alive: bool  # whether the process is neither a zombie nor exiting


def read_process(pid: int) -> Process | None:
    """Return the current state of the process with this pid, even of a zombie; None if absent."""
    return _parse_stat(pid, _read_start(f"/proc/{pid}/stat", 1024))


def is_same_process(pid: int, started: int) -> bool:
    """Return whether the process with this pid and start time is still alive."""
    process = read_process(pid)
    return process is not None and process.alive and process.started == started


def _parse_stat(pid: int, line: bytes) -> Process | None:
    # The second field of `/proc/PID/stat` is the process name in parentheses, and the name itself
    # may contain parentheses and blanks.
    fields = line.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    state, parent, group, session = fields[:4]
    # A main thread that has ended stays a zombie while other threads of the process live.
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


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its reaped children; 0 for an absent process."""
    fields = _read_start(f"/proc/{pid}/stat", 1024).rpartition(b")")[2].split()
    ticks = sum(map(int, fields[11:15])) if len(fields) > 14 else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def exit_code(pid: int, started: int) -> int | None:
    """Return the wait(2) status of a zombie with this pid and start time; None if there is none."""
    line = _read_start(f"/proc/{pid}/stat", 1024)
    fields = line.rpartition(b")")[2].split()
    if len(fields) < 50 or fields[0] not in (b"Z", b"X") or int(fields[19]) != started:
        return None
    return int(fields[49])


def list_pids() -> list[int]:
    """Return the pids of all processes, without threads. Raises OSError if /proc is unreadable."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def list_own_children() -> list[int]:
    """Return the pids of this process's children, including zombies and adopted orphans.

    Raises OSError when /proc cannot be read.
    """
    alone = threading.active_count() == 1
    threads = [str(os.getpid())] if alone else os.listdir("/proc/self/task")
    found: list[int] = []
    for thread in threads:
        try:
            fd = os.open(f"/proc/self/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # The file `/proc/self/task/TID/children` is missing if the thread TID has ended, or if
            # the kernel does not offer this file.
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
    """Return all current processes, keyed by pid.

    Raises OSError when /proc cannot be read, for example without a free descriptor: an empty result
    would wrongly say that no process exists.
    """
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
    """Reader of the pid that the kernel issued last, to any process or thread.

    `LastPid` keeps the file `/proc/loadavg` open, because nacre reads the last issued pid from it
    whenever a command exits.
    """

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
        """Open `/proc/loadavg`, and duplicate its descriptor.

        The duplicate descriptor is a reserve: a scan of /proc needs two descriptors, and `close`
        frees two, even if the host has used up all others.
        """
        self._fds.append(os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC))
        with suppress(OSError):
            self._fds.append(os.dup(self._fds[0]))


def soft_locks(pid: int) -> int | None:
    """Return the soft RLIMIT_LOCKS of a process: -1 means unlimited, None means unknown."""
    try:
        return resource.prlimit(pid, RLIMIT_LOCKS)[0]
    except PermissionError:
        return _soft_locks_from_proc(pid)
    except OSError:
        return None


def _soft_locks_from_proc(pid: int) -> int | None:
    """Return the soft RLIMIT_LOCKS of a process of another user.

    The system call prlimit(2) is not permitted for another user's process, but its
    `/proc/PID/limits` is readable.
    """
    value = _word_after(b"Max file locks", _read_start(f"/proc/{pid}/limits", 4096))
    if not value:
        return None
    return int(value) if value.isdigit() else -1


def count_oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since the system boot."""
    count = _word_after(b"\noom_kill ", read_file("/proc/vmstat"))
    return int(count) if count.isdigit() else 0


def ignored_signals() -> set[int]:
    """Return the signals that this process ignores, including signals that Python does not name."""
    mask = int(_word_after(b"\nSigIgn:", read_file("/proc/self/status")) or b"0", 16)
    return {number for number in range(1, 65) if mask >> number - 1 & 1}


def is_thread(pid: int) -> bool:
    """Return whether this number is the id of a thread other than the main thread of a process."""
    tgid = _word_after(b"\nTgid:", _read_start(f"/proc/{pid}/status", 512))
    return tgid not in (b"", str(pid).encode())


def is_descendant(pid: int, ancestor: int) -> bool:
    """Return whether the parent chain of a process leads to this ancestor."""
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
    """Return a readable label of a process: its arguments, or its name in brackets."""
    for name, shown in (("cmdline", "{}"), ("comm", "[{}]")):
        text = _read_start(f"/proc/{pid}/{name}", 4096).rstrip(b"\0\n").replace(b"\0", b" ")
        if text:
            return shown.format(text.decode("utf-8", "replace"))
    return "[gone]"


def runs_program(pid: int, path: bytes) -> bool:
    """Return whether a process runs the program in this file."""
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/exe"), os.stat(path))
    except OSError:
        return False


def is_in_deleted_directory(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd").endswith(" (deleted)")
    except OSError:
        return False


def is_busy(pid: int) -> bool:
    """Return whether a process runs, is ready to run, or waits for a disk."""
    process = read_process(pid)
    return process is not None and process.state in ("R", "D")


def is_starting(pid: int) -> bool:
    """Return whether a process is inside execve(2) and has no arguments to show yet.

    A process that sleeps and has no arguments is not inside execve(2), and gets no arguments
    later.
    """
    return not _read_start(f"/proc/{pid}/cmdline", 1) and is_busy(pid)


def writes_to_pipe(pid: int, pipes: frozenset[int]) -> bool:
    """Return whether a process holds the write end of one of the pipes with these inodes."""
    names = {f"pipe:[{inode}]" for inode in pipes}
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_read_link(pid, fd) in names and _is_writable(pid, fd) for fd in fds)


def writes_file(pid: int, path: str) -> bool:
    """Return whether a process has this file open for writing."""
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_read_link(pid, fd) == path and _is_writable(pid, fd) for fd in fds)


def find_file_writers(path: str) -> list[int]:
    """Return the pids of the processes that have this file open for writing, except processes
    whose descriptors this process has no permission to read."""
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
    """Return the first bytes of a file in /proc, empty when the process is gone.

    `_read_start` uses `os.open` instead of `open`, because `os.open` takes half the time.
    """
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
    """Return the content of a file in /proc, empty when the file is gone or not readable."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _word_after(label: bytes, text: bytes) -> bytes:
    words = text.partition(label)[2].split(maxsplit=1)
    return words[0] if words else b""
