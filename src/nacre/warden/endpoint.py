"""Where clients and the warden of a state directory meet.

    warden.lock          whoever holds this lock is the warden; its line says who that is
    warden.sock          where it listens
    warden.PID.sock      the same, for as long as it lives: also when a newer one has the place
    warden.log           what it had to complain about

Sockets are reached through a descriptor of their directory: a path may be longer than a socket's
name can be, and nobody can put another directory in its place meanwhile.
"""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from nacre.process.daemonize import start_daemon
from nacre.store.state_dir import open_private, private_state_dir

SOCKET: Final = "warden.sock"
LOCK: Final = "warden.lock"
LOG: Final = "warden.log"
_MAX_LOG: Final = 256 * 1024
_CREDENTIALS: Final = struct.Struct("3i")
# Of the environment, only what it takes to run Python and to find the state directory.
_VARIABLES: Final = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "NACRE_WARDEN_IDLE",
    "PATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHOME",
    "PYTHONPYCACHEPREFIX",
    "TMPDIR",
    "TZ",
)


class ForeignSocket(Exception):
    """Somebody else listens there."""


def socket_name(pid: int) -> str:
    return f"warden.{pid}.sock"


def connect(name: str = SOCKET) -> socket.socket | None:
    """Connect to the warden of this socket; None when none listens. Raises OSError,
    ForeignSocket."""
    with _state_dir_fd_path() as place:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.connect(f"{place}/{name}")
            if read_peer(connection)[1] != os.getuid():
                raise ForeignSocket(f"{name} is served by another user")
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
    return connection


def read_peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    size = _CREDENTIALS.size
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return pid, uid


@contextmanager
def _state_dir_fd_path() -> Iterator[str]:
    fd = os.open(private_state_dir(), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


class WardenLock:
    """The right to be the warden. Let go by the kernel when we die."""

    def __init__(self) -> None:
        """Raises BlockingIOError when there is a warden, OSError."""
        self._fd = open_private(f"{private_state_dir()}/{LOCK}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def write_owner(self, word: str) -> None:
        """Say who has it."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{word}\n".encode(), 0)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def read_owner() -> str | None:
    """Who holds the lock, or was the last to do so."""
    try:
        with open(f"{private_state_dir()}/{LOCK}") as file:
            return file.read().strip() or None
    except OSError:
        return None


def open_socket() -> socket.socket:
    """For the holder of the lock: take the place. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with _state_dir_fd_path() as place:
            mine = f"{place}/{socket_name(os.getpid())}"
            with suppress(FileNotFoundError):  # of somebody who had our number before
                os.unlink(mine)
            before = os.umask(0o177)
            try:
                connection.bind(mine)
            finally:
                os.umask(before)
            connection.listen(1024)
            draft = f"{mine}.draft"
            with suppress(FileNotFoundError):
                os.unlink(draft)
            os.link(mine, draft)
            os.rename(draft, f"{place}/{SOCKET}")
            _remove_dead_sockets(place)
    except BaseException:
        connection.close()
        raise
    return connection


def remove_public_socket() -> None:
    """Take away the name that all look for. For the holder of the lock."""
    with suppress(OSError), _state_dir_fd_path() as directory:
        if os.path.samefile(f"{directory}/{socket_name(os.getpid())}", f"{directory}/{SOCKET}"):
            os.unlink(f"{directory}/{SOCKET}")


def remove_own_socket() -> None:
    """Take away our own name, too."""
    with suppress(OSError), _state_dir_fd_path() as directory:
        os.unlink(f"{directory}/{socket_name(os.getpid())}")


def _remove_dead_sockets(place: str) -> None:
    """Remove sockets that nobody serves any more."""
    for name in os.listdir(place):
        number = name.removeprefix("warden.").partition(".")[0]
        ours = name.startswith("warden.") and ".sock" in name and number.isdigit()
        if ours and number != str(os.getpid()):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.setblocking(False)
                try:
                    probe.connect(f"{place}/{name}")
                except ConnectionRefusedError:
                    os.unlink(f"{place}/{name}")


def start_warden(pipes: tuple[int, ...] = (), *words: str) -> int:
    """Start one, if it finds the place empty. Returns what says when it can be reached: a byte, or
    nothing but the end if it never can. `pipes` go to it. Raises OSError."""
    if not sys.executable:
        raise OSError("this program is no Python that could be started again; start nacre warden")
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        log = _open_log()
        try:
            start_daemon(
                [
                    os.fsencode(sys.executable),
                    b"-m",
                    b"nacre",
                    b"warden",
                    b"--ready",
                    b"%d" % writing,
                    *map(os.fsencode, words),
                ],
                _warden_environment(),
                errors=log,
                passed=(writing, *pipes),
            )
        finally:
            os.close(log)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return reading


def last_log_line() -> str:
    """The last thing that a warden had to say."""
    with suppress(OSError), open(f"{private_state_dir()}/{LOG}", "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        lines = file.read().decode("utf-8", "replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")
    return ""


def _open_log() -> int:
    path = f"{private_state_dir()}/{LOG}"
    fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if os.fstat(fd).st_size > _MAX_LOG:
        os.ftruncate(fd, 0)
    return fd


def _warden_environment() -> dict[bytes, bytes]:
    import msgspec

    import nacre

    files = [each.__file__ or "" for each in (nacre, msgspec)]
    passed = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    passed["NACRE_HOME"] = private_state_dir()
    # Where our host has found us and what we need; its own interpreter may not look there.
    passed["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys(os.path.dirname(os.path.dirname(each)) for each in files)
    )
    return {os.fsencode(name): os.fsencode(value) for name, value in passed.items()}
