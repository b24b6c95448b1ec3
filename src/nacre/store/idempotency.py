"""Idempotency keys (request ids): a retry with the same key does not run the command again.

    requests/<workspace>/<digest of the key>

A key makes a request idempotent. Before a command runs, its process claims the key by creating the
key's file. If several processes race for a key, only one succeeds. The file names the run, the
request's digest and the claiming process. A claim is valid as long as the store has its run. If the
claiming process died before the run started, the next process with that key takes over the claim.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from nacre.model.ids import digest
from nacre.model.requests import IdempotencyKey
from nacre.store import journal, run_owner
from nacre.store.run_record import runs_directory
from nacre.store.state_dir import make_private_directory, open_private, private_state_dir, state_dir


class Claim(Struct, frozen=True, kw_only=True):
    id: str  # the key in readable form, for debugging
    run: int
    digest: str
    owner: str  # process that was about to start the run


def claim_key(key: IdempotencyKey, workspace: bytes, run: int, kind: run_owner.Kind) -> Claim:
    """Claim the key for this run. Raises OSError.

    Return the claim that is valid: the new claim, or an earlier one.
    """
    path = _claim_path(key.id, workspace)
    mine = Claim(id=key.id, run=run, digest=key.digest, owner=run_owner.own_id(kind))
    make_private_directory(os.path.dirname(path))
    draft = f"{path}.{os.getpid()}.{run}"
    with os.fdopen(open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(msgspec.json.encode(mine))
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
            return mine
        with _exclusive_lock(os.path.dirname(path)):
            there = _read_claim(path)
            if there is not None and (there.run == run or _is_valid(there, workspace)):
                return there
            os.rename(draft, path)  # the lock keeps other processes from taking over the claim
            return mine
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


@contextmanager
def _exclusive_lock(directory: str) -> Iterator[None]:
    """Hold an exclusive lock on the claims in this directory. Raises OSError."""
    fd = open_private(f"{directory}/.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def release_key(key: IdempotencyKey, workspace: bytes, run: int) -> None:
    """Delete the claim of a run that never started, so that a retry may run the command."""
    with suppress(OSError):
        path = _claim_path(key.id, workspace)
        with _exclusive_lock(os.path.dirname(path)):
            there = _read_claim(path)
            if there is not None and there.run == run:
                os.unlink(path)


def remove_old_claims(before: float, seconds: float) -> None:
    """Delete claims that are older than the Unix time `before` and whose runs were deleted.

    After `seconds`, the remaining claims are left for the next cleanup.
    """
    end = time.monotonic() + seconds
    with suppress(OSError), os.scandir(f"{state_dir()}/requests") as places:
        for place in places:
            with os.scandir(place.path) as entries:
                for entry in entries:
                    if time.monotonic() > end:
                        return
                    if entry.stat().st_mtime < before and not _may_have_run(entry.path, place.name):
                        os.unlink(entry.path)


def _may_have_run(path: str, place: str) -> bool:
    """Return whether the store may still have the claim's run.

    The function only checks whether the run's journal file or directory exists. Searching the
    journal for the run takes too long.
    """
    there, at = _read_claim(path), state_dir()
    if there is None:
        return False
    directory = f"{runs_directory(at)}/r{there.run}"
    return os.path.exists(journal.journal_path(at, place, there.run)) or os.path.exists(directory)


def _is_recorded(run: int, place: str) -> bool:
    at = state_dir()
    return os.path.exists(f"{runs_directory(at)}/r{run}/plan") or (
        journal.find_entries(at, place, run)[0] is not None
    )


def _is_valid(there: Claim, workspace: bytes) -> bool:
    if _is_recorded(there.run, journal.workspace_key(workspace)):
        return True
    maker = run_owner.parse_owner(there.owner)  # a live owner may be about to start the run
    return maker is not None and maker.is_alive


def _claim_path(name: str, workspace: bytes) -> str:
    place, file = (
        journal.workspace_key(workspace),
        digest(name.encode("utf-8", "surrogatepass"), 16),
    )
    return f"{private_state_dir()}/requests/{place}/{file}"


def _read_claim(path: str) -> Claim | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Claim)
    except (OSError, msgspec.MsgspecError):
        return None
