"""Lock file, sockets and log of the warden (nacre's daemon) in its state directory, and the start
of the warden.

    warden.lock          locked by the process that is the warden; its one line names that process
    warden.sock          public name of the current warden's socket
    warden.PID.sock      own name of a warden's socket; stays when a newer one takes the public name
    warden.log           error messages (stderr) of the warden

Sockets are opened through a descriptor of the state directory, because the path of the directory
may be longer than a socket address can be. With a descriptor of the state directory, two system
calls use the same directory, even if another directory gets its path between the calls.
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
# Environment variables that a new warden inherits: only those needed to run Python and to find the
# state directory.
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
    """Error: a process of another user listens on the warden's socket."""


def socket_name(pid: int) -> str:
    return f"warden.{pid}.sock"


def connect(name: str = SOCKET) -> socket.socket | None:
    """Connect to the warden at this socket; return None if no warden listens. Raises OSError,
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
    """Return the pid and the uid of the process at the other end of the socket."""
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
    """Lock held by the one process that is the warden; the kernel releases the lock when that
    process dies."""

    def __init__(self) -> None:
        """Take the warden's lock. Raises BlockingIOError if another warden holds the lock. Raises
        OSError if the lock file cannot be opened or locked."""
        self._fd = open_private(f"{private_state_dir()}/{LOCK}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def write_owner(self, word: str) -> None:
        """Write the identity of the warden into the lock file."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{word}\n".encode(), 0)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def read_owner() -> str | None:
    """Return the identity of the current or last warden, as written in the lock file."""
    try:
        with open(f"{private_state_dir()}/{LOCK}") as file:
            return file.read().strip() or None
    except OSError:
        return None


def open_socket() -> socket.socket:
    """Create the warden's socket; the caller must hold the warden's lock. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with _state_dir_fd_path() as place:
            mine = f"{place}/{socket_name(os.getpid())}"
            # An earlier warden with the same pid as this one may have left its socket file.
            with suppress(FileNotFoundError):
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
    """Remove warden.sock, the socket name that clients connect to, if it still belongs to this
    warden; the caller must hold the warden's lock."""
    with suppress(OSError), _state_dir_fd_path() as directory:
        if os.path.samefile(f"{directory}/{socket_name(os.getpid())}", f"{directory}/{SOCKET}"):
            os.unlink(f"{directory}/{SOCKET}")


def remove_own_socket() -> None:
    """Remove warden.PID.sock, the name of this warden's socket that contains its pid."""
    with suppress(OSError), _state_dir_fd_path() as directory:
        os.unlink(f"{directory}/{socket_name(os.getpid())}")


def _remove_dead_sockets(place: str) -> None:
    """Remove the sockets of wardens that no longer run."""
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
    """Start a warden process, which exits at once if another warden holds the lock.

    Return the read end of a pipe that yields one byte when a warden can be reached, or EOF without
    a byte if the warden failed to start. The new warden process inherits the descriptors in `pipes`
    and gets `words` as further arguments. Raises OSError.
    """
    if not sys.executable:
        raise OSError(
            "this program is not a Python interpreter that can start the warden; run nacre warden"
        )
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
    """Return the last line of the warden's log that is not blank."""
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
    # PYTHONPATH names the directories where the host found nacre and msgspec, because a new Python
    # interpreter may not search these directories.
    passed["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys(os.path.dirname(os.path.dirname(each)) for each in files)
    )
    return {os.fsencode(name): os.fsencode(value) for name, value in passed.items()}
