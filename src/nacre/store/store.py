"""The store of a tool: what its runs write to, and what keeps that within bounds.

The state directory may be shared by any number of processes; numbers are never given twice.
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

# One run in so many looks whether it is time to sweep.
_EVERY_RUNS: Final = 64
_MIN_INTERVAL: Final = 3600.0
_DAY: Final = 24 * 3600.0
# A sweep happens while a command runs, in the host's own thread: so long at a time.
_TIME_SLICE: Final = 0.01


def claim_run(key: IdempotencyKey, workspace: bytes, number: int, kind: run_owner.Kind) -> int:
    """The run that this request is: this one, or an earlier one. Raises Refused."""
    try:
        there = idempotency.claim_key(key, workspace, number, kind)
    except OSError as error:
        raise Refused(Unavailable(problem=f"the request id cannot be kept: {error}")) from None
    if there.digest != key.digest:
        raise Refused(OtherRequest(id=key.id, run=f"r{there.run}"))
    return there.run


def release_claim(request: StartRun, number: int) -> None:
    """Give the request id back: nothing ran, so the same request may be made again."""
    if request.idempotency_key is not None:
        idempotency.release_key(request.idempotency_key, request.workspace, number)


class Store:
    def __init__(self, bounds: StoreLimits = cleanup.DEFAULT_LIMITS) -> None:
        self._bounds = bounds
        self._files = RunFiles()
        self._cleaned_at = 0  # the number after which we did so

    def next_number(self) -> int:
        """For a run that somebody else will write down. Raises Refused."""
        try:
            return self._files.next_number()
        except OSError as error:
            raise Refused(Unavailable(problem=f"the state cannot be kept: {error}")) from None

    def new_record(self, plan: Plan, workspace: bytes, number: int | None = None) -> RunRecord:
        """For a run that is about to be. Nothing is written yet."""
        return RunRecord(self._files, plan, workspace, number)

    def clean_up_sometimes(self) -> None:
        """Remove what is too old or too much, now and then, and a little at a time."""
        last = self._files.last
        if last % _EVERY_RUNS == 1 and last != self._cleaned_at:
            self._cleaned_at = last
            with suppress(OSError, ImportError):  # modules are loaded there, which may fail, too
                self._clean_up(f"{self._files.home()}/swept")

    def _clean_up(self, stamp: str) -> None:
        with suppress(FileNotFoundError):
            if time.time() - os.stat(stamp).st_mtime < _MIN_INTERVAL:
                return
        old = time.time() - self._bounds.days * _DAY
        idempotency.remove_old_claims(old, _TIME_SLICE)
        if os.path.isdir(f"{self._files.home()}/sessions"):
            from nacre.store import session_files  # who has none need not load them

            session_files.remove_old_sessions(old, _TIME_SLICE)
        if not cleanup.clean_up(self._bounds, seconds=_TIME_SLICE):  # else there may be more to do
            os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.utime(stamp)

    def close(self) -> None:
        self.clean_up_sometimes()
        self._files.close()
