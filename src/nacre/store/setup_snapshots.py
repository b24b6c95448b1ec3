"""Snapshots of the user's shell set-up, which is read once and stored until the set-up changes.

    snapshots/<signature of the set-up>

Each snapshot of a shell set-up (what the user's shell startup files define) is one private file.
The file name of a snapshot is the signature (a digest) of the user's shell set-up, computed by
`sessions.setup_signature`. The module `sessions.setup_cache` writes the snapshots of shell set-ups.
If nacre could not read the user's shell set-up, nacre stores an empty snapshot and tries again
after 600 seconds.
"""

import os
import time
from typing import Final

import msgspec
from msgspec import Struct

from nacre.shell_state.state import ShellState
from nacre.store.state_dir import make_private_directory, private_state_dir, write_atomically

# Seconds after which nacre repeats a failed attempt to read the user's shell set-up.
_RETRY_SECONDS: Final = 600.0


class SetupSnapshot(Struct, frozen=True, kw_only=True, rename={"created": "made"}):
    created: float
    state: ShellState | None  # what the user's startup files define; None: it could not be read


def load_snapshot(name: str) -> SetupSnapshot | None:
    """Return the stored snapshot of the user's shell set-up; None if there is no snapshot, or if an
    attempt to read the set-up failed more than 600 seconds ago and is to be repeated."""
    try:
        with open(_snapshot_path(name), "rb") as file:
            found = msgspec.msgpack.decode(file.read(), type=SetupSnapshot)
    except (OSError, msgspec.MsgspecError):
        return None
    failed = found.state is None and time.time() - found.created > _RETRY_SECONDS
    return None if failed else found


def save_snapshot(name: str, snapshot: SetupSnapshot) -> None:
    """Write the snapshot of the user's shell set-up to the snapshot's file. Raises OSError."""
    make_private_directory(os.path.dirname(_snapshot_path(name)))
    write_atomically(_snapshot_path(name), msgspec.msgpack.encode(snapshot))


def _snapshot_path(name: str) -> str:
    return f"{private_state_dir()}/snapshots/{name}"
