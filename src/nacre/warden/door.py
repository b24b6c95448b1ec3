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

from nacre.process.alone import start_alone
from nacre.store.home import open_private, safe_home

SOCKET: Final = "warden.sock"
LOCK: Final = "warden.lock"
LOG: Final = "warden.log"
_LONGEST_LOG: Final = 256 * 1024
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


class NotOurs(Exception):
    """Somebody else listens there."""


def own_socket(pid: int) -> str:
    return f"warden.{pid}.sock"


def connect(name: str = SOCKET) -> socket.socket | None:
    """A connection to whoever listens there; None when nobody does. Raises OSError, NotOurs."""
    with _directory() as place:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            made.connect(f"{place}/{name}")
            if peer(made)[1] != os.getuid():
                raise NotOurs(f"{name} is served by another user")
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            made.close()
            return None
        except BaseException:
            made.close()
            raise
    return made


def peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    size = _CREDENTIALS.size
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return pid, uid


@contextmanager
def _directory() -> Iterator[str]:
    fd = os.open(safe_home(), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


class Lock:
    """The right to be the warden. Let go by the kernel when we die."""

    def __init__(self) -> None:
        """Raises BlockingIOError when there is a warden, OSError."""
        self._fd = open_private(f"{safe_home()}/{LOCK}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def sign(self, word: str) -> None:
        """Say who has it."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{word}\n".encode(), 0)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def signed() -> str | None:
    """Who holds the lock, or was the last to do so."""
    try:
        with open(f"{safe_home()}/{LOCK}") as file:
            return file.read().strip() or None
    except OSError:
        return None


def listen() -> socket.socket:
    """For the holder of the lock: take the place. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with _directory() as place:
            mine = f"{place}/{own_socket(os.getpid())}"
            with suppress(FileNotFoundError):  # of somebody who had our number before
                os.unlink(mine)
            before = os.umask(0o177)
            try:
                made.bind(mine)
            finally:
                os.umask(before)
            made.listen(1024)
            draft = f"{mine}.draft"
            with suppress(FileNotFoundError):
                os.unlink(draft)
            os.link(mine, draft)
            os.rename(draft, f"{place}/{SOCKET}")
            _sweep(place)
    except BaseException:
        made.close()
        raise
    return made


def leave_place() -> None:
    """Take away the name that all look for. For the holder of the lock."""
    with suppress(OSError), _directory() as directory:
        if os.path.samefile(f"{directory}/{own_socket(os.getpid())}", f"{directory}/{SOCKET}"):
            os.unlink(f"{directory}/{SOCKET}")


def leave() -> None:
    """Take away our own name, too."""
    with suppress(OSError), _directory() as directory:
        os.unlink(f"{directory}/{own_socket(os.getpid())}")


def _sweep(place: str) -> None:
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


def start(pipes: tuple[int, ...] = (), *words: str) -> int:
    """Start one, if it finds the place empty. Returns what says when it can be reached: a byte, or
    nothing but the end if it never can. `pipes` go to it. Raises OSError."""
    if not sys.executable:
        raise OSError("this program is no Python that could be started again; start nacre warden")
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        log = _log()
        try:
            start_alone(
                [
                    os.fsencode(sys.executable),
                    b"-m",
                    b"nacre",
                    b"warden",
                    b"--ready",
                    b"%d" % writing,
                    *map(os.fsencode, words),
                ],
                _environment(),
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


def complaint() -> str:
    """The last thing that a warden had to say."""
    with suppress(OSError), open(f"{safe_home()}/{LOG}", "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        lines = file.read().decode("utf-8", "replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")
    return ""


def _log() -> int:
    path = f"{safe_home()}/{LOG}"
    fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if os.fstat(fd).st_size > _LONGEST_LOG:
        os.ftruncate(fd, 0)
    return fd


def _environment() -> dict[bytes, bytes]:
    import msgspec

    import nacre

    files = [each.__file__ or "" for each in (nacre, msgspec)]
    kept = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    kept["NACRE_HOME"] = safe_home()
    # Where our host has found us and what we need; its own interpreter may not look there.
    kept["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys(os.path.dirname(os.path.dirname(each)) for each in files)
    )
    return {os.fsencode(name): os.fsencode(value) for name, value in kept.items()}
