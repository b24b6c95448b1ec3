"""Where nacre keeps its state: `$NACRE_HOME`, else `$XDG_STATE_HOME/nacre`, else
`~/.local/state/nacre`. Directories are 0700, files 0600."""

import errno
import os
from contextlib import suppress


def home() -> str:
    """Raises OSError when nobody can tell."""
    if chosen := os.environ.get("NACRE_HOME"):
        return chosen
    if state := os.environ.get("XDG_STATE_HOME"):
        return f"{state}/nacre"
    place = os.path.expanduser("~/.local/state/nacre")
    if place.startswith("~"):
        raise OSError("this user has no home directory; set NACRE_HOME")
    return place


def private_directory(path: str) -> str:
    """Make the directory and what is missing above it, all for their owner only, whatever the
    umask; one that is there already is left as it is. Raises OSError."""
    if not os.path.isdir(path):
        above = os.path.dirname(path.rstrip("/"))
        if above != path:
            private_directory(above or ".")
        with suppress(FileExistsError):  # somebody makes it at the same time
            os.mkdir(path, 0o700)
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return path
