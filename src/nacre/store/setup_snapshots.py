"""What a user's own set-up makes of a shell, read once and kept for as long as it stays as it is.

    snapshots/<digest of what was read, and for whom>

One private file each, written by `sessions.setup_cache`. A set-up that could not be read is stored
as well, empty, and is tried again after a while.
"""

import os
import time
from typing import Final

import msgspec
from msgspec import Struct

from nacre.shell_state.state import ShellState
from nacre.store.state_dir import make_private_directory, private_state_dir, write_atomically

_RETRY_SECONDS: Final = 600.0  # seconds after which a failure is forgotten


class SetupSnapshot(Struct, frozen=True, kw_only=True, rename={"created": "made"}):
    created: float
    state: ShellState | None  # None: it could not be had


def load_snapshot(name: str) -> SetupSnapshot | None:
    """None: nobody has made it yet, or not lately."""
    try:
        with open(_snapshot_path(name), "rb") as file:
            found = msgspec.msgpack.decode(file.read(), type=SetupSnapshot)
    except (OSError, msgspec.MsgspecError):
        return None
    failed = found.state is None and time.time() - found.created > _RETRY_SECONDS
    return None if failed else found


def save_snapshot(name: str, snapshot: SetupSnapshot) -> None:
    """Raises OSError."""
    make_private_directory(os.path.dirname(_snapshot_path(name)))
    write_atomically(_snapshot_path(name), msgspec.msgpack.encode(snapshot))


def _snapshot_path(name: str) -> str:
    return f"{private_state_dir()}/snapshots/{name}"
