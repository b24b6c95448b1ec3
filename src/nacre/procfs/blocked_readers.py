"""Detection of processes that block in a read from a certain pipe.

`/proc/PID/task/TID/syscall` contains the number and the arguments of a thread's current system
call. An argument of read(2) is the descriptor itself, while an argument of poll(2) and select(2) is
the address of the descriptors in the memory of the process. The descriptors that an epoll instance
watches are in its file in `/proc/PID/fdinfo`. nacre does not detect a blocked read in a process of
another user, through io_uring, or in a system call unknown to nacre. A thread that waits for
connections as well as for input counts as a server, not as a program that asks for input.
"""

import os
import struct
from typing import Final, NamedTuple

from nacre.procfs import ports, processes

_READABLE: Final = 0x1  # value of POLLIN and of EPOLLIN
_POLLFD: Final = struct.Struct("ihh")
_MAX_FDS: Final = 1024  # maximum number of descriptors that are checked for one system call
_MAX_DEPTH: Final = 4  # maximum depth of epoll instances that watch other epoll instances
_EPOLL: Final = "anon_inode:[eventpoll]"


class _Calls(NamedTuple):
    """System call numbers of one processor architecture."""

    first: frozenset[int]  # system calls that read from the descriptor in their first argument
    second: frozenset[int]  # system calls that read from the descriptor in their second argument
    poll: frozenset[int]
    select: frozenset[int]
    epoll: frozenset[int]


_CALLS: Final = {
    # The descriptor to read from is the first argument of read, readv, preadv2, splice, tee, accept
    # and accept4, and the second argument of sendfile.
    "x86_64": _Calls(
        frozenset({0, 19, 327, 275, 276, 43, 288}),
        frozenset({40}),
        frozenset({7, 271}),
        frozenset({23, 270}),
        frozenset({232, 281, 441}),
    ),
    "aarch64": _Calls(
        frozenset({63, 65, 286, 76, 77, 202, 242}),
        frozenset({71}),
        frozenset({73}),
        frozenset({72}),
        frozenset({22, 441}),
    ),
}


class Pipe(NamedTuple):
    """Identity of a pipe: the device and inode numbers, which are the same for both ends."""

    device: int
    inode: int


def identify_pipe(fd: int) -> Pipe:
    """Return the identity of the pipe behind a descriptor of this process. Raises OSError."""
    status = os.fstat(fd)
    return Pipe(status.st_dev, status.st_ino)


def waits_to_read(pid: int, pipe: Pipe) -> bool:
    """Return whether a thread of process `pid` waits to read from the pipe `pipe` and does not also
    wait for connections."""
    calls = _CALLS.get(os.uname().machine)
    if calls is None:
        return False
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return any(_thread_waits_to_read(pid, thread, pipe, calls) for thread in threads)


def _thread_waits_to_read(pid: int, thread: str, pipe: Pipe, calls: _Calls) -> bool:
    fds = _awaited_fds(pid, thread, calls)
    if not any(_is_pipe(pid, fd, pipe) for fd in fds):
        return False
    sockets = {inode for fd in fds if (inode := ports.socket_inode(pid, fd)) is not None}
    return not (sockets and sockets & ports.accepting_sockets(pid))


def _awaited_fds(pid: int, thread: str, calls: _Calls) -> list[int]:
    """Return the descriptors from which this thread waits to read."""
    words = processes.read_file(f"/proc/{pid}/task/{thread}/syscall").split()
    if len(words) < 7:  # the thread is running, or sleeps outside any system call
        return []
    number, *given = int(words[0]), *(int(word, 16) for word in words[1:7])
    if number in calls.first:
        return [_signed(given[0])]
    if number in calls.second:
        return [_signed(given[1])]
    if number in calls.poll:
        return _poll_fds(pid, given[0], min(given[1], _MAX_FDS))
    if number in calls.select:
        return _select_fds(pid, given[1], min(given[0], _MAX_FDS)) if given[1] else []
    if number in calls.epoll:
        return _epoll_fds(pid, _signed(given[0]), _MAX_DEPTH)
    return []


def _signed(word: int) -> int:
    """Return the descriptor in a system call argument: the low 32 bits as a signed integer."""
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 else word


def _poll_fds(pid: int, address: int, count: int) -> list[int]:
    data = _read_memory(pid, address, _POLLFD.size * count)
    whole = len(data) // _POLLFD.size * _POLLFD.size
    return [fd for fd, wanted, _ in _POLLFD.iter_unpack(data[:whole]) if wanted & _READABLE]


def _select_fds(pid: int, address: int, count: int) -> list[int]:
    bits = _read_memory(pid, address, (count + 7) // 8)
    return [fd for fd in range(min(count, len(bits) * 8)) if bits[fd // 8] >> fd % 8 & 1]


def _epoll_fds(pid: int, epoll: int, depth: int) -> list[int]:
    found: list[int] = []
    for line in processes.read_file(f"/proc/{pid}/fdinfo/{epoll}").splitlines():
        words = line.split()
        if len(words) < 4 or words[0] != b"tfd:" or not int(words[3], 16) & _READABLE:
            continue
        fd = int(words[1])
        if depth and _read_link(pid, fd) == _EPOLL:
            found += _epoll_fds(pid, fd, depth - 1)
        else:
            found.append(fd)
    return found


def _is_pipe(pid: int, fd: int, pipe: Pipe) -> bool:
    try:
        status = os.stat(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == pipe


def _read_link(pid: int, fd: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""


def _read_memory(pid: int, address: int, count: int) -> bytes:
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, count, address)
    except (OSError, OverflowError):  # the memory is not mapped, or the address is not valid
        return b""
    finally:
        os.close(fd)
