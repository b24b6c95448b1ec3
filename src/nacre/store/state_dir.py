"""State directory of nacre, and private files and directories in it.

The state directory is `$NACRE_HOME`, else `$XDG_STATE_HOME/nacre`, else `~/.local/state/nacre`.
nacre creates directories with mode 0700 and files with mode 0600.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress


def state_dir() -> str:
    """Return the path of nacre's state directory. Raises OSError if the user has no home
    directory."""
    if chosen := os.environ.get("NACRE_HOME"):
        return os.path.abspath(chosen)
    if state := os.environ.get("XDG_STATE_HOME"):
        return os.path.abspath(f"{state}/nacre")
    place = os.path.expanduser("~/.local/state/nacre")
    if place.startswith("~"):
        raise OSError("this user has no home directory; set NACRE_HOME")
    return place


def private_state_dir() -> str:
    """Create nacre's state directory, if missing, and return its path.

    Raises OSError if the state directory is not private to this user.
    """
    place = make_private_directory(state_dir())
    check_private(place)
    return place


def check_private(path: str) -> None:
    """Check that no other user owns this directory or can write to it. Raises OSError.

    Another user with write access to nacre's state directory could read nacre's state, or make
    nacre read foreign files.
    """
    link, found = os.lstat(path), os.stat(path)
    if link.st_uid not in (os.getuid(), 0) or found.st_uid != os.getuid():
        raise PermissionError(
            errno.EPERM,
            "it belongs to another user; set NACRE_HOME to a directory of your own",
            path,
        )
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(
            errno.EPERM,
            "other users may write to it; chmod 700 it, or set NACRE_HOME to another",
            path,
        )


def describe_os_error(error: OSError) -> str:
    """Return an OSError as text without its number: the path first, then the problem."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def make_private_directory(path: str) -> str:
    """Create the directory and its missing parents with mode 0700, independent of the umask.

    A directory that exists already is left unchanged. Raises OSError.
    """
    missing = []
    at = path
    while not os.path.isdir(at):
        missing.append(at)
        at = os.path.dirname(at.rstrip("/")) or "/"
    for each in reversed(missing):
        with suppress(FileExistsError):  # another process may create the directory at the same time
            os.mkdir(each, 0o700)
            os.chmod(each, 0o700)
        if not os.path.isdir(each):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each)
    return path


def open_private(path: str | bytes, flags: int) -> int:
    """Open a file; with O_CREAT, give it mode 0600, independent of the umask. Raises OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY, 0o600)
    if flags & os.O_CREAT and stat.S_IMODE(os.fstat(fd).st_mode) != 0o600:
        with suppress(OSError):  # fchmod(2) fails if the file belongs to another user
            os.fchmod(fd, 0o600)
    return fd


def write_atomically(
    path: str, data: bytes, before_rename: Callable[[], None] | None = None
) -> None:
    """Write a private file by atomic rename, because other processes may read it meanwhile.

    `before_rename` is called after the data was written to a draft file, and before the draft is
    renamed to `path`. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(open_private(draft_path(path), flags), "wb") as file:
        file.write(data)
    if before_rename is not None:
        before_rename()
    os.rename(draft_path(path), path)


def draft_path(path: str) -> str:
    return f"{path}.draft"
