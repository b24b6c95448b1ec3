"""Idempotency keys (request ids): a retry with the same key does not run the command again.

    requests/<workspace>/<digest of the key>

Before a command with an idempotency key runs, the process that runs it claims the key by creating
the key's file. If several processes race for an idempotency key, only one of them succeeds in
claiming the key. The file of an idempotency key names the run, the request's digest and the process
that claimed the key. The claim on an idempotency key is valid as long as the store has the run that
the claim names. If the process that claimed an idempotency key died before its run started, the
next process that claims the key succeeds.
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
    id: str  # the idempotency key in readable form, for debugging
    run: int
    digest: str
    owner: str  # process that claimed the idempotency key before starting a run


def claim_key(key: IdempotencyKey, workspace: bytes, run: int, kind: run_owner.Kind) -> Claim:
    """Claim an idempotency key for a run. Raises OSError.

    Return the existing claim on the idempotency key if that claim is valid; otherwise, return the
    new claim.
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
            # This process holds the lock on the directory of the claims, so no other process
            # replaces the same invalid claim at the same time.
            os.rename(draft, path)
            return mine
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


@contextmanager
def _exclusive_lock(directory: str) -> Iterator[None]:
    """Hold an exclusive lock on a directory that contains claims of idempotency keys. Raises
    OSError."""
    fd = open_private(f"{directory}/.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def release_key(key: IdempotencyKey, workspace: bytes, run: int) -> None:
    """Delete the claim of a run that never started, so that a retry with the same idempotency key
    may run the command."""
    with suppress(OSError):
        path = _claim_path(key.id, workspace)
        with _exclusive_lock(os.path.dirname(path)):
            there = _read_claim(path)
            if there is not None and there.run == run:
                os.unlink(path)


def remove_old_claims(before: float, seconds: float) -> None:
    """Delete claims of idempotency keys that are older than the Unix time `before` and whose runs
    were deleted.

    After `seconds` seconds, `remove_old_claims` stops, and leaves the remaining old claims for the
    next cleanup of the store.
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
    """Return whether the store may still have the run for which a key was claimed.

    `_may_have_run` only checks whether the run's journal file or directory exists, because
    searching the journal for the run takes too long.
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
    # A claim without a stored run is valid while the process that made the claim is alive, because
    # that process may be about to start the run.
    maker = run_owner.parse_owner(there.owner)
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
