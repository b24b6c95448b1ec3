"""Watching a run for the first of several things to become true: a line, a port, an answer, a file,
silence. Done by whoever waits, not by whoever runs it, and never so that it could hang us: patterns
are tried in a process of their own, answers awaited on a thread.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import nacre
from nacre.asks import Evidence, Until
from nacre.engine.ground import Ground
from nacre.engine.run import Run
from nacre.loop import Call, Timer, now
from nacre.outcome import Outcome
from nacre.plan import MIB, Command, Keep, Limits, Plan, Streams
from nacre.proc import ports
from nacre.process.tag import Tag
from nacre.process.tree import Remains
from nacre.reach import tag_of
from nacre.search import Search, asked, told
from nacre.store import reading
from nacre.store.home import home
from nacre.store.record import runs

_LOOK: Final = 0.1  # seconds between two looks at what nobody tells us of
_ANSWER: Final = 2.0  # for something to answer
_PROCESSOR: Final = 60  # seconds of one, for a pattern
_CLOSELY: Final = 10  # one look in so many is a close one
_SERVES: Final = 500  # from this status on, it is there but not ready
_PROGRAM: Final = (
    b"import sys; sys.path.insert(0, sys.argv[1]); from nacre.search import main; main()"
)

if TYPE_CHECKING:
    from http.client import HTTPConnection

Fired = Callable[[Evidence], None]


def searching(search: Search, data: bytes = b"", seconds: float | None = None) -> Plan:
    """A process that tries a pattern, and is killed after so many seconds. What it has for itself
    is bounded, too: its parent may be killed, and it with a pattern that never ends."""
    package = os.path.dirname(os.path.dirname(nacre.__file__ or ""))
    return Plan(
        command=Command(
            given=b"search",
            script=b'ulimit -t %d; exec "$P" -I -S -W ignore -c "$C" "$L"' % _PROCESSOR,
            cwd=b"/",
            env={
                b"P": os.fsencode(sys.executable),
                b"C": _PROGRAM,
                b"L": os.fsencode(package),
                b"PYTHONDONTWRITEBYTECODE": b"1",
            },
        ),
        streams=Streams.SEPARATE,  # a complaint of Python is no answer
        limits=Limits(timeout=seconds, grace=0.0),
        keep=Keep(whole=4 * MIB, head=4 * MIB, tail=0),
        stdin=asked(search) + data,
    )


class Watch:
    """`fired` is called once, if at all; it goes on until it is stopped."""

    _over = False
    _has_fired = False
    _then: Call | None = None
    _timer: Timer | None = None
    _tag: Tag | None = None
    _looks = 0

    def __init__(
        self,
        until: tuple[Until, ...],
        run: int,
        workspace: bytes,
        ground: Ground,
        fired: Fired,
        *,
        since: int = 0,
    ) -> None:
        """`since`: only lines after this byte count."""
        self._until = until
        self._number = run
        self._workspace = workspace
        self._ground = ground
        self._fired = fired
        self._since = since
        self._searches: list[Run] = []
        self._probes: list[_Probe] = []
        self._size, self._quiet_since = -1, now()

    def begin(self) -> None:
        for each in self._until:
            if each.output is not None:
                self._search(each)
            elif each.http is not None:
                self._probe(each)
        looked_at = [each for each in self._until if each.output is None and each.http is None]
        if looked_at:
            self._look(looked_at)

    def stop(self, then: Call) -> None:
        """`then` is called once nothing of it is left; it must be driven until that."""
        self._over, self._then = True, then
        if self._timer is not None:
            self._timer.cancel()
        for probe in list(self._probes):
            probe.stop()
        for search in list(self._searches):
            search.cancel()
            search.cancel()  # at once
        self._rest()

    def _rest(self) -> None:
        # Who looks for a host far away may take his time, and is not waited for.
        busy = self._searches or any(probe.is_local for probe in self._probes)
        if self._over and not busy and self._then is not None:
            then, self._then = self._then, None
            then()

    def work(self) -> None:
        for search in list(self._searches):
            search.work()

    def _fire(self, evidence: Evidence) -> None:
        if not self._over and not self._has_fired:
            self._has_fired = True
            self._fired(evidence)

    # What is looked at.

    def _look(self, until: list[Until]) -> None:
        if self._over:
            return
        for each in until:
            found = self._seen(each)
            if found is not None:
                self._fire(found)
                return
        self._timer = self._ground.loop.after(_LOOK, lambda: self._look(until))

    def _seen(self, until: Until) -> Evidence | None:
        if until.file is not None:
            return Evidence(until=until) if os.path.lexists(until.file) else None
        if until.idle is not None:
            return Evidence(until=until) if self._quiet() >= until.idle else None
        return self._listener(until)

    def _quiet(self) -> float:
        """For how long nothing was said."""
        try:
            status = os.stat(self._log)
            size, age = status.st_size, time.time() - status.st_mtime
        except OSError:
            size, age = 0, 0.0
        if size != self._size:
            # What has come true before counts, too.
            before = max(0.0, age) if self._size < 0 else 0.0
            self._size, self._quiet_since = size, now() - before
        return now() - self._quiet_since

    def _listener(self, until: Until) -> Evidence | None:
        """A process of this run that listens on the port. Who looks from another network sees more;
        so we look closely now and then, also when nobody seems to be there."""
        self._looks += 1
        if until.port is None or (self._looks % _CLOSELY and not ports.is_taken(until.port)):
            return None
        for pid, listens in ports.ports_of(self._members()).items():
            if until.port in listens:
                return Evidence(until=until, pid=pid)
        return None

    def _members(self) -> list[int]:
        """The processes of this run."""
        if self._tag is None:
            try:
                self._tag = tag_of(reading.find(self._number, self._workspace))
            except (reading.NoSuchRun, OSError):
                return []
        try:
            return [] if self._tag is None else [e.pid for e in Remains(self._tag).members()]
        except OSError:
            return []

    @property
    def _log(self) -> str:
        return f"{runs(home())}/r{self._number}/output"

    # What is waited for elsewhere.

    def _search(self, until: Until) -> None:
        wanted = Search(
            pattern=until.output or "",
            path=self._log,
            offset=self._since,
            first=self._line(),
            watch=True,
        )
        plan = searching(wanted)
        search = Run("u0", plan, self._ground, answer=lambda said: self._found(search, until, said))
        self._searches.append(search)
        search.begin()

    def _found(self, search: Run, until: Until, said: Outcome) -> None:
        self._searches.remove(search)
        for found in told(said.output.head, 1).found if not self._over else ():
            self._fire(Evidence(until=until, line=found.line, text=found.text))
        self._rest()

    def _line(self) -> int:
        """That the first byte to look at belongs to."""
        if not self._since:
            return 1
        try:
            run = reading.find(self._number, self._workspace)
            with run.open() as source:
                return reading.newlines_before(source, self._since, run.index()) + 1
        except (reading.NoSuchRun, OSError):
            return 1

    def _probe(self, until: Until) -> None:
        probe = _Probe(until.http or "")
        probe.then = partial(self._ground.loop.post, partial(self._probed, until, probe))
        self._probes.append(probe)
        probe.start()

    def _probed(self, until: Until, probe: "_Probe") -> None:
        """It is over: something has answered, or we have stopped it."""
        self._probes.remove(probe)
        if probe.status is not None and not self._over:
            stranger = self._stranger(probe.port) if probe.is_local else None
            self._fire(Evidence(until=until, status=probe.status, stranger=stranger))
        self._rest()

    def _stranger(self, port: int) -> int | None:
        """Who answers there, if that is nobody of this run."""
        listens, ours = ports.holders(port), set(self._members())
        return None if not listens or ours & set(listens) else listens[0]


class _Probe(threading.Thread):
    """Asks again and again, until something answers."""

    then: Callable[[], object]
    status: int | None = None
    _connection: "HTTPConnection | None" = None

    def __init__(self, url: str) -> None:

        from urllib.parse import urlsplit  # few need it

        super().__init__(name="nacre-http", daemon=True)
        self._url = urlsplit(url)
        self._over = threading.Event()

    @property
    def port(self) -> int:
        return self._url.port or (443 if self._url.scheme == "https" else 80)

    @property
    def is_local(self) -> bool:
        host = self._url.hostname or ""
        return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")

    def stop(self) -> None:
        """Also when it is just being answered, a byte at a time."""
        self._over.set()
        connection = self._connection
        made = None if connection is None else connection.sock
        if made is not None:
            with suppress(OSError):
                made.shutdown(2)

    def run(self) -> None:
        try:
            while not self._over.is_set():
                status = self._asked()
                if status is not None and status < _SERVES and not self._over.is_set():
                    self.status = status
                    return
                self._over.wait(_LOOK)
        finally:
            self.then()

    def _asked(self) -> int | None:
        from http.client import HTTPException

        url = self._url
        path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
        made = self._connection = self._connected()
        try:
            made.request("GET", path, headers={"User-Agent": "nacre", "Connection": "close"})
            return made.getresponse().status
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            made.close()

    def _connected(self) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection

        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme != "https":
            return HTTPConnection(host, port, timeout=_ANSWER)
        import ssl

        # What is asked is whether it is there, of servers that sign for themselves.
        context = ssl._create_unverified_context()
        return HTTPSConnection(host, port, timeout=_ANSWER, context=context)
