"""Where nacre keeps its state: `$NACRE_HOME`, else `$XDG_STATE_HOME/nacre`, else
`~/.local/state/nacre`. Directories are 0700, files 0600."""

import errno
import os
from contextlib import suppress


def home() -> str:
    """Raises OSError when nobody can tell."""
    if chosen := os.environ.get("NACRE_HOME"):
        return os.path.abspath(chosen)
    if state := os.environ.get("XDG_STATE_HOME"):
        return os.path.abspath(f"{state}/nacre")
    place = os.path.expanduser("~/.local/state/nacre")
    if place.startswith("~"):
        raise OSError("this user has no home directory; set NACRE_HOME")
    return place


def private_directory(path: str) -> str:
    """Make the directory and what is missing above it, all for their owner only, whatever the
    umask; one that is there already is left as it is. Raises OSError."""
    missing = []
    at = path
    while not os.path.isdir(at):
        missing.append(at)
        at = os.path.dirname(at.rstrip("/")) or "/"
    for each in reversed(missing):
        with suppress(FileExistsError):  # somebody makes it at the same time
            os.mkdir(each, 0o700)
        if not os.path.isdir(each):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each)
    return path
