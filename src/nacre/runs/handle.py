"""A handle for one run, usable from any process: read its output, wait for it, write to it, end it.

    run = tool.run("r17")
    page = run.read(since=0)          # page.text, and page.cursor for the next read
    outcome = run.wait(5)             # None: the run is still running
    run.signal("TERM")

Each blocking method of a run handle has a variant for asyncio, such as `await run.await_(5)` for
`run.wait(5)`. Reading a run's output does not consume the output.
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

# Engine of all run handles; a handle does not use the engine of the tool that returned it, because
# it may outlive the tool.
_engine = Engine()


class Page(Struct, frozen=True, kw_only=True):
    """A part of a run's output."""

    data: bytes
    cursor: int  # byte offset where the next page begins; pass it as `since` to read that page
    over: bool  # whether the run has ended and this is the last page of its output

    @property
    def text(self) -> str:
        return decode(self.data)


class RunHandle:
    """Handle for one run of a workspace; a property that can change, such as `state`, reads the
    store at each access."""

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
        """How the run ended; None while it runs."""
        return self._reload().ending

    @property
    def state(self) -> str:
        """State of the run: running, exited, killed, timed_out, cancelled, not_started or lost."""
        return ending_state(self.ending)

    @property
    def exit_code(self) -> int | None:
        return ending_code(self.ending)

    @property
    def seconds(self) -> float:
        """Seconds from the start of the run until now, or until its end if it has ended."""
        return self._reload().seconds

    def read(self, since: int = 0, *, most: int = MIB, stream: Stream = Stream.OUTPUT) -> Page:
        """Read at most `most` bytes of the output from byte `since` on. Raises LookupError when the
        output is not stored, and OSError when it cannot be read."""
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
            return Page(data=b"", cursor=since, over=False)  # the run has no output on disk yet
        cursor = since + len(data)
        return Page(data=data, cursor=cursor, over=over and cursor >= size)

    def wait(self, seconds: float | None = None) -> Outcome | None:
        """Wait for the run's outcome; return None when the run is still running after `seconds`."""
        return self._access.wait(self.id, _seconds(seconds)).wait()

    async def await_(self, seconds: float | None = None) -> Outcome | None:
        return await self._access.wait(self.id, _seconds(seconds))

    def signal(self, signal: str | int) -> None:
        """Send a signal to the run's process tree. Raises Refused when no process of the run is
        alive."""
        raise_if_rejected(self._access.signal(self.id, signal_number(signal)).wait())

    async def asignal(self, signal: str | int) -> None:
        raise_if_rejected(await self._access.signal(self.id, signal_number(signal)))

    def end(self, signal: str | int = "TERM", *, grace: float = GRACE) -> Outcome | None:
        """End the run: send `signal` to its process tree, and KILL after `grace` seconds. Return
        the run's outcome, or None when a process could not be killed."""
        return self._access.end(self.id, signal_number(signal), _seconds(grace) or 0.0).wait()

    async def aend(self, signal: str | int = "TERM", *, grace: float = GRACE) -> Outcome | None:
        return await self._access.end(self.id, signal_number(signal), _seconds(grace) or 0.0)

    def write(self, data: str | bytes, *, eof: bool = False) -> None:
        """Write data to the run's stdin. Raises Refused when the run's stdin is not open."""
        raise_if_rejected(self._access.write(self.id, _bytes(data), eof=eof).wait())

    async def awrite(self, data: str | bytes, *, eof: bool = False) -> None:
        raise_if_rejected(await self._access.write(self.id, _bytes(data), eof=eof))

    def _reload(self) -> StoredRun:
        if self._run.end_entry is None:
            self._run = self._access.find(self.id)
        return self._run


def _seconds(given: float | None) -> float | None:
    if given is not None and not given >= 0:
        raise ValueError(
            f"{given} is not a number of seconds; give 0 or more, or None for no limit"
        )
    return None if given == float("inf") else given


def _bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data
