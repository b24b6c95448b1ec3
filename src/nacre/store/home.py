"""Where nacre keeps its state: `$NACRE_HOME`, else `$XDG_STATE_HOME/nacre`, else
`~/.local/state/nacre`. Directories are 0700, files 0600."""

import os
from pathlib import Path


def home() -> Path:
    if chosen := os.environ.get("NACRE_HOME"):
        return Path(chosen)
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "nacre"
    return Path("~/.local/state/nacre").expanduser()


def private_directory(path: Path) -> Path:
    """Make the directory, for its owner only; one that is there already is left as it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
