"""A run, for whoever holds on to it: read it, wait for it, write to it, end it; from any process.

    run = tool.run("r17")
    page = run.read(since=0)          # page.text, and page.cursor for the next time
    outcome = run.wait(5)             # None: it goes on
    run.signal("TERM")

What waits has a twin for asyncio: `await run.await_(5)`. Nothing is used up by looking at it.
"""

import os

from msgspec import Struct

from nacre.engine.engine import Engine
from nacre.model.events import Stream
from nacre.model.outcome import Ending, Outcome, ending_code, ending_state
from nacre.model.plan import MIB
from nacre.model.signals import signal_number
from nacre.runs.access import GRACE, RunAccess, raise_if_rejected
from nacre.store.output_range import read_page
from nacre.store.stored_run import NoSuchRun, StoredRun
from nacre.text.clean import decode

_engine = Engine()  # a handle is good for longer than the tool that gave it


class Page(Struct, frozen=True, kw_only=True):
    """Some of what a run has said."""

    data: bytes
    cursor: int  # where to go on: `since` of the next one
    over: bool  # the run has ended, and this is the last of it

    @property
    def text(self) -> str:
        return decode(self.data)


class RunHandle:
    """One run of a workspace. Its properties are what the store knows at that moment."""

    def __init__(self, run: StoredRun, workspace: bytes) -> None:
        self._run = run
        self._access = RunAccess(_engine, workspace)

    def __repr__(self) -> str:
        return f"<{self.id} {self.state}: {self.command!r}>"

    @property
    def id(self) -> str:
        return self._run.name

    @property
    def command(self) -> str:
        return self._run.start_entry.command

    @property
    def cwd(self) -> str:
        return self._run.start_entry.cwd

    @property
    def ending(self) -> Ending | None:
        """None while it runs."""
        return self._reload().ending

    @property
    def state(self) -> str:
        """running, exited, killed, timed_out, cancelled, not_started or lost."""
        return ending_state(self.ending)

    @property
    def exit_code(self) -> int | None:
        return ending_code(self.ending)

    @property
    def seconds(self) -> float:
        """How long it ran, or has run."""
        return self._reload().seconds

    def read(self, since: int = 0, *, most: int = MIB, stream: Stream = Stream.OUTPUT) -> Page:
        """Its output from a cursor on, at most so much. Raises LookupError when it is nowhere,
        OSError."""
        if since < 0 or most < 1:
            raise ValueError(f"since={since}, most={most}: a cursor is 0 or more, most 1 or more")
        run = self._reload()
        over = run.ending is not None
        try:
            with run.open(stream) as source:
                data = read_page(source, since, most, more_follows=not over)
                size = source.seek(0, os.SEEK_END)
        except NoSuchRun:
            if over:
                raise
            return Page(data=b"", cursor=since, over=False)  # none of it is on disk yet
        cursor = since + len(data)
        return Page(data=data, cursor=cursor, over=over and cursor >= size)

    def wait(self, seconds: float | None = None) -> Outcome | None:
        """How it ended; None when it has not, within so many seconds."""
        return self._access.wait(self.id, _seconds(seconds)).wait()

    async def await_(self, seconds: float | None = None) -> Outcome | None:
        return await self._access.wait(self.id, _seconds(seconds))

    def signal(self, signal: str | int) -> None:
        """To everything that it has started. Raises Refused when nothing of it lives."""
        raise_if_rejected(self._access.signal(self.id, signal_number(signal)).wait())

    async def asignal(self, signal: str | int) -> None:
        raise_if_rejected(await self._access.signal(self.id, signal_number(signal)))

    def end(self, signal: str | int = "TERM", *, grace: float = GRACE) -> Outcome | None:
        """This signal, the grace, then KILL, to all of it; returns how it ended. None: something
        of it could not be killed."""
        return self._access.end(self.id, signal_number(signal), _seconds(grace) or 0.0).wait()

    async def aend(self, signal: str | int = "TERM", *, grace: float = GRACE) -> Outcome | None:
        return await self._access.end(self.id, signal_number(signal), _seconds(grace) or 0.0)

    def write(self, data: str | bytes, *, eof: bool = False) -> None:
        """To its stdin, where that was left open. Raises Refused where it was not."""
        raise_if_rejected(self._access.write(self.id, _bytes(data), eof=eof).wait())

    async def awrite(self, data: str | bytes, *, eof: bool = False) -> None:
        raise_if_rejected(await self._access.write(self.id, _bytes(data), eof=eof))

    def _reload(self) -> StoredRun:
        if self._run.end_entry is None:
            self._run = self._access.find(self.id)
        return self._run


def _seconds(given: float | None) -> float | None:
    if given is not None and not given >= 0:
        raise ValueError(f"{given} seconds make no sense; it is 0 or more, or None for ever")
    return None if given == float("inf") else given


def _bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data
