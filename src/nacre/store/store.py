"""Store: the files that record a tool's runs on disk, and the cleanup that limits their age and
size.

Any number of processes may share one state directory, and no two runs in it get the same number.
"""

import os
import time
from contextlib import suppress
from typing import Final

from nacre.model.plan import Plan
from nacre.model.refusals import OtherRequest, Refused, Unavailable
from nacre.model.requests import IdempotencyKey, StartRun
from nacre.store import cleanup, idempotency, run_owner
from nacre.store.cleanup import StoreLimits
from nacre.store.run_record import RunFiles, RunRecord
from nacre.store.state_dir import describe_os_error

# Number of runs after which the store checks whether a cleanup is due.
_EVERY_RUNS: Final = 64
_MIN_INTERVAL: Final = 3600.0  # minimum seconds between two complete cleanups of the store
_DAY: Final = 24 * 3600.0
# Maximum seconds for each part of a cleanup; short, because the cleanup runs in the host program's
# thread while a command runs.
_TIME_SLICE: Final = 0.01


def claim_run(key: IdempotencyKey, workspace: bytes, number: int, kind: run_owner.Kind) -> int:
    """Claim an idempotency key for the run `number`, and return `number`, or the number of the
    earlier run that has claimed the key.

    Raises Refused.
    """
    try:
        there = idempotency.claim_key(key, workspace, number, kind)
    except OSError as error:
        problem = f"the request id cannot be stored: {describe_os_error(error)}"
        raise Refused(Unavailable(problem=problem)) from None
    if there.digest != key.digest:
        raise Refused(OtherRequest(id=key.id, run=f"r{there.run}"))
    return there.run


def release_claim(request: StartRun, number: int) -> None:
    """Release the idempotency key of a request whose command never ran, so that the request may be
    retried."""
    if request.idempotency_key is not None:
        idempotency.release_key(request.idempotency_key, request.workspace, number)


class Store:
    def __init__(self, bounds: StoreLimits = cleanup.DEFAULT_LIMITS) -> None:
        self._bounds = bounds
        self._files = RunFiles()
        # Newest run number when the store last checked whether a cleanup is due.
        self._cleaned_at = 0

    def next_number(self) -> int:
        """Reserve a number for a run whose record does not exist yet. Raises Refused."""
        try:
            return self._files.next_number()
        except OSError as error:
            problem = f"the state cannot be stored: {describe_os_error(error)}"
            raise Refused(Unavailable(problem=problem)) from None

    def new_record(self, plan: Plan, workspace: bytes, number: int | None = None) -> RunRecord:
        """Create the record object of a run that is about to start, without writing to disk."""
        return RunRecord(self._files, plan, workspace, number)

    def clean_up_sometimes(self) -> None:
        """If a cleanup of the store is due, delete old stored runs, but stop when a time limit is
        reached."""
        last = self._files.last
        if last % _EVERY_RUNS == 1 and last != self._cleaned_at:
            self._cleaned_at = last
            # A cleanup of the store imports modules lazily, so it may raise ImportError.
            with suppress(OSError, ImportError):
                self._clean_up(f"{self._files.home()}/swept")

    def _clean_up(self, stamp: str) -> None:
        with suppress(FileNotFoundError):
            if time.time() - os.stat(stamp).st_mtime < _MIN_INTERVAL:
                return
        old = time.time() - self._bounds.days * _DAY
        idempotency.remove_old_claims(old, _TIME_SLICE)
        if os.path.isdir(f"{self._files.home()}/sessions"):
            # Lazy import: `session_files` is needed only if the store has sessions.
            from nacre.store import session_files

            session_files.remove_old_sessions(old, _TIME_SLICE)
        # If the store has nothing to delete, the cleanup is complete; the modification time of the
        # file `stamp` is the time of the last complete cleanup.
        if not cleanup.clean_up(self._bounds, seconds=_TIME_SLICE):
            os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.utime(stamp)

    def close(self) -> None:
        self.clean_up_sometimes()
        self._files.close()
