"""The store of a tool: what its runs write to, and what keeps that within bounds.

The state directory may be shared by any number of processes; numbers are never given twice.
"""

import os
import time
from contextlib import suppress
from typing import Final

from nacre.asks import Request
from nacre.plan import Plan
from nacre.refusals import OtherRequest, Refused, Unavailable
from nacre.store import owner, requests, sweep
from nacre.store.record import Files, Record
from nacre.store.sweep import Bounds

# One run in so many looks whether it is time to sweep.
_NOW_AND_THEN: Final = 64
_PAUSE: Final = 3600.0
_DAY: Final = 24 * 3600.0
# A sweep happens while a command runs, in the host's own thread: so long at a time.
_SLICE: Final = 0.01


def claimed(request: Request, workspace: bytes, number: int, kind: owner.Kind) -> int:
    """The run that this request is: this one, or an earlier one. Raises Refused."""
    try:
        there = requests.claim(request, workspace, number, kind)
    except OSError as error:
        raise Refused(Unavailable(problem=f"the request id cannot be kept: {error}")) from None
    if there.digest != request.digest:
        raise Refused(OtherRequest(id=request.id, run=f"r{there.run}"))
    return there.run


class Store:
    def __init__(self, bounds: Bounds = sweep.USUAL) -> None:
        self._bounds = bounds
        self._files = Files()
        self._tidied = 0  # the number after which we did so

    def number(self) -> int:
        """For a run that somebody else will write down. Raises Refused."""
        try:
            return self._files.count()
        except OSError as error:
            raise Refused(Unavailable(problem=f"the state cannot be kept: {error}")) from None

    def record(self, plan: Plan, workspace: bytes, number: int | None = None) -> Record:
        """For a run that is about to be. Nothing is written yet."""
        return Record(self._files, plan, workspace, number)

    def tidy(self) -> None:
        """Remove what is too old or too much, now and then, and a little at a time."""
        last = self._files.last
        if last % _NOW_AND_THEN == 1 and last != self._tidied:
            self._tidied = last
            with suppress(OSError):
                self._tidy(f"{self._files.home()}/swept")

    def _tidy(self, stamp: str) -> None:
        with suppress(FileNotFoundError):
            if time.time() - os.stat(stamp).st_mtime < _PAUSE:
                return
        old = time.time() - self._bounds.days * _DAY
        requests.forget_old(old, _SLICE)
        if os.path.isdir(f"{self._files.home()}/sessions"):
            from nacre.store import sessions  # who has none need not load them

            sessions.forget_old(old, _SLICE)
        if not sweep.sweep(self._bounds, seconds=_SLICE):  # else there may be more to do
            os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.utime(stamp)

    def close(self) -> None:
        self.tidy()
        self._files.close()
