"""The store of a tool: what its runs write to, and what keeps that within bounds.

The state directory may be shared by any number of processes; numbers are never given twice.
"""

from typing import Final

from nacre.plan import Plan
from nacre.store import sweep
from nacre.store.record import Files, Record
from nacre.store.sweep import Bounds

# One run in so many looks whether something is to be swept.
_NOW_AND_THEN: Final = 64


class Store:
    def __init__(self, bounds: Bounds = sweep.USUAL) -> None:
        self._bounds = bounds
        self._files = Files()

    def record(self, plan: Plan, workspace: bytes) -> Record:
        """For a run that is about to be. Nothing is written yet."""
        return Record(self._files, plan, workspace)

    def tidy(self, run: str) -> None:
        """Remove what is too old or too much, now and then."""
        if run[1:].isdigit() and int(run[1:]) % _NOW_AND_THEN == 1:
            sweep.sweep(self._bounds)

    def close(self) -> None:
        self._files.close()
