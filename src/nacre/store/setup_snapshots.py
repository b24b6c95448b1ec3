"""Snapshots of the user's set-up, which is read once and stored until the set-up changes.

    snapshots/<signature of the set-up>

Each snapshot is one private file. `sessions.setup_cache` writes the snapshots, and
`sessions.setup_signature` computes the signatures. If the set-up could not be read, an empty
snapshot is stored, and reading is retried after 600 seconds.
"""

import os
import time
from typing import Final

import msgspec
from msgspec import Struct

from nacre.shell_state.state import ShellState
from nacre.store.state_dir import make_private_directory, private_state_dir, write_atomically

_RETRY_SECONDS: Final = 600.0  # seconds after which a failed read is retried


class SetupSnapshot(Struct, frozen=True, kw_only=True, rename={"created": "made"}):
    created: float
    state: ShellState | None  # None: the set-up could not be read


def load_snapshot(name: str) -> SetupSnapshot | None:
    """Return the stored snapshot; None if there is none, or if a failed read is to be retried."""
    try:
        with open(_snapshot_path(name), "rb") as file:
            found = msgspec.msgpack.decode(file.read(), type=SetupSnapshot)
    except (OSError, msgspec.MsgspecError):
        return None
    failed = found.state is None and time.time() - found.created > _RETRY_SECONDS
    return None if failed else found


def save_snapshot(name: str, snapshot: SetupSnapshot) -> None:
    """Write the snapshot to its file. Raises OSError."""
    make_private_directory(os.path.dirname(_snapshot_path(name)))
    write_atomically(_snapshot_path(name), msgspec.msgpack.encode(snapshot))


def _snapshot_path(name: str) -> str:
    return f"{private_state_dir()}/snapshots/{name}"
