"""Listening sockets of this machine, and the processes that hold them, as read from /proc."""

import os
import re
from collections.abc import Iterable
from typing import Final

from nacre.procfs import processes

_LISTEN: Final = b"0A"
_ACCEPTS: Final = 0x10000  # flag of a unix socket that accepts connections
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")


def listening_sockets(pid: int | None = None) -> dict[int, int]:
    """Return the inode and port of each TCP socket that accepts connections in the network
    namespace of process `pid`; None means this process."""
    found: dict[int, int] = {}
    for name in ("tcp", "tcp6"):
        for line in processes.read_file(f"/proc/{pid or 'self'}/net/{name}").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN:
                found[int(fields[9])] = int(fields[1].rpartition(b":")[2], 16)
    return found


def accepting_sockets(pid: int) -> set[int]:
    """Return the inodes of all sockets that accept connections, including unix sockets, in the
    network namespace of process `pid`."""
    found = set(listening_sockets(pid))
    for line in processes.read_file(f"/proc/{pid}/net/unix").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 6 and int(fields[3], 16) & _ACCEPTS:
            found.add(int(fields[6]))
    return found


def socket_inode(pid: int, fd: int | str) -> int | None:
    """Return the inode of the socket behind a descriptor; None if the descriptor is no socket."""
    try:
        named = _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{fd}"))
    except OSError:
        return None
    return int(named[1]) if named else None


def find_ports(pids: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Return the TCP ports on which each of these processes listens.

    The returned map has no ports for a process whose descriptors nacre has no permission to read.
    """
    return {pid: _ports_of_process(pid) for pid in pids}


def _ports_of_process(pid: int) -> tuple[int, ...]:
    sockets = _socket_inodes(pid)
    if not sockets:
        return ()
    known = listening_sockets(pid)
    return tuple(sorted({known[inode] for inode in sockets if inode in known}))


def find_listeners(port: int) -> list[int]:
    """Return the pids of the processes that listen on this TCP port.

    The returned list lacks processes whose descriptors nacre has no permission to read.
    """
    inodes = {inode for inode, at in listening_sockets().items() if at == port}
    if not inodes:
        return []
    return [pid for pid in processes.list_pids() if inodes & _socket_inodes(pid)]


def is_port_taken(port: int) -> bool:
    """Return whether any process listens on this TCP port."""
    return port in listening_sockets().values()


def _socket_inodes(pid: int) -> set[int]:
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:  # the process has exited, or its descriptors are not readable
        return set()
    return {inode for fd in fds if (inode := socket_inode(pid, fd)) is not None}
