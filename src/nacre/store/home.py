"""Where nacre keeps its state: `$NACRE_HOME`, else `$XDG_STATE_HOME/nacre`, else
`~/.local/state/nacre`. Directories are 0700, files 0600."""

import os


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
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above == path:
            raise
        private_directory(above)
        return private_directory(path)
    return path
