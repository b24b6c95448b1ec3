"""The store of a tool: every run gets a number and is written down.

The state directory may be shared by any number of processes: numbers come from one counter, a file
that grows by a byte with each, and are never given twice.
"""

import time
from itertools import count
from typing import Final

from nacre.plan import Plan
from nacre.store import journal, sweep
from nacre.store.appending import Appending
from nacre.store.home import home
from nacre.store.journal import Begun
from nacre.store.record import Record, Unrecorded
from nacre.store.sweep import Bounds
from nacre.text import decode

# One run in so many looks whether something is to be swept.
_NOW_AND_THEN: Final = 64


class Store:
    def __init__(self, bounds: Bounds = sweep.USUAL) -> None:
        self._bounds = bounds
        self._counter = Appending()
        self._journal = Appending()
        self._unrecorded = count(1)
        self._last = 0

    def begin(self, plan: Plan, workspace: bytes) -> Record:
        """Give it a number and write it down. Never raises."""
        try:
            place = home()
            number = self._last = self._counter.append(f"{place}/counter", b".")
            path = journal.path_of(place, workspace, number)
            begun = _begun(number, plan, workspace)
            self._journal.append(path, journal.encode(begun) + b"\n")
        except OSError as error:
            return Unrecorded(f"u{next(self._unrecorded)}", error)
        return Record(f"r{number}", begun, place, self._journal, path)

    def tidy(self) -> None:
        """Remove what is too old or too much, now and then."""
        if self._last % _NOW_AND_THEN == 1:
            sweep.sweep(self._bounds)

    def close(self) -> None:
        self._counter.close()
        self._journal.close()


def _begun(number: int, plan: Plan, workspace: bytes) -> Begun:
    command = plan.command
    return Begun(
        run=number,
        time=round(time.time(), 3),
        workspace=decode(workspace),
        cwd=decode(command.cwd),
        command=decode(command.given),
        script=None if command.script == command.given else decode(command.script),
        streams=plan.streams,
        timeout=plan.limits.timeout,
        variables=None if command.env is None else tuple(map(decode, command.env)),
    )
