"""Watching a run for the first of several things to become true: a line, a port, an answer, a file,
silence. Done by whoever waits, not by whoever runs it, and never so that it could hang us: patterns
are tried in a process of their own, answers awaited on a thread.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec

import nacre
from nacre.asks import Evidence, Until
from nacre.engine.ground import Ground
from nacre.engine.run import Run
from nacre.loop import Call, Timer, now
from nacre.outcome import Outcome
from nacre.plan import MIB, Command, Keep, Limits, Plan
from nacre.proc import ports
from nacre.process.tag import read as read_tag
from nacre.process.tree import Remains
from nacre.store import reading
from nacre.store.home import home
from nacre.store.record import runs

_LOOK: Final = 0.1  # seconds between two looks at what nobody tells us of
_ANSWER: Final = 2.0  # for something to answer
_SERVES: Final = 500  # from this status on, it is there but not ready
_PROGRAM: Final = (
    b"import sys; sys.path.insert(0, sys.argv[1]); from nacre.search import main; main()"
)

Fired = Callable[[Evidence], None]


def searching(request: bytes, seconds: float | None) -> Plan:
    """A process that tries a pattern, and is killed after so many seconds."""
    package = os.path.dirname(os.path.dirname(nacre.__file__ or ""))
    return Plan(
        command=Command(
            given=b"search",
            script=b'exec "$P" -I -S -c "$C" "$L"',
            cwd=b"/",
            env={
                b"P": os.fsencode(sys.executable),
                b"C": _PROGRAM,
                b"L": os.fsencode(package),
                b"PYTHONDONTWRITEBYTECODE": b"1",
            },
        ),
        limits=Limits(timeout=seconds, grace=0.0),
        keep=Keep(whole=4 * MIB, head=4 * MIB, tail=0),
        stdin=request,
    )


class Watch:
    """`fired` is called once, if at all; it goes on until it is stopped."""

    _over = False
    _has_fired = False
    _then: Call | None = None
    _timer: Timer | None = None
    _tag: int | None = None

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
        for probe in self._probes:
            probe.stop()
        for search in list(self._searches):
            search.cancel()
            search.cancel()  # at once
        self._rest()

    def _rest(self) -> None:
        if self._over and not self._searches and self._then is not None:
            then, self._then = self._then, None
            then()

    def work(self) -> None:
        for search in self._searches:
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
            size = os.stat(self._log).st_size
        except OSError:
            size = 0
        if size != self._size:
            self._size, self._quiet_since = size, now()
        return now() - self._quiet_since

    def _listener(self, until: Until) -> Evidence | None:
        """A process of this run that listens on the port."""
        if self._tag is None:
            try:
                self._tag = reading.find(self._number, self._workspace).begun.tag
            except (reading.NoSuchRun, OSError):
                return None
        mark = read_tag(self._tag)
        if mark is None:
            return None
        try:
            members = Remains(mark).members()
        except OSError:
            return None
        for pid, listens in ports.ports_of(each.pid for each in members).items():
            if until.port in listens:
                return Evidence(until=until, pid=pid)
        return None

    @property
    def _log(self) -> str:
        return f"{runs(home())}/r{self._number}/output"

    # What is waited for elsewhere.

    def _search(self, until: Until) -> None:
        asked = {"watch": True, "path": self._log, "pattern": until.output, "since": self._since}
        plan = searching(msgspec.json.encode(asked) + b"\n", None)
        search = Run("u0", plan, self._ground, answer=lambda said: self._found(search, until, said))
        self._searches.append(search)
        search.begin()

    def _found(self, search: Run, until: Until, said: Outcome) -> None:
        self._searches.remove(search)
        lines = said.output.head.splitlines()
        if not self._over and lines:
            line, text, _ = msgspec.json.decode(lines[0])
            self._fire(Evidence(until=until, line=line, text=text))
        self._rest()

    def _probe(self, until: Until) -> None:
        def answered(status: int) -> None:
            evidence = Evidence(until=until, text=f"status {status}")
            self._ground.loop.post(lambda: self._fire(evidence))

        probe = _Probe(until.http or "", answered)
        self._probes.append(probe)
        probe.start()


class _Probe(threading.Thread):
    """Asks again and again, until something answers."""

    def __init__(self, url: str, answered: Callable[[int], None]) -> None:
        super().__init__(name="nacre-http", daemon=True)
        self._url = urlsplit(url)
        self._answered = answered
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        while not self._over.is_set():
            status = self._status()
            if status is not None and status < _SERVES:
                self._answered(status)
                return
            self._over.wait(_LOOK)

    def _status(self) -> int | None:
        import http.client
        import ssl

        url, host = self._url, self._url.hostname or ""
        try:
            if url.scheme == "https":
                # What is asked is whether it is there, of servers that sign for themselves.
                context = ssl._create_unverified_context()
                made: http.client.HTTPConnection = http.client.HTTPSConnection(
                    host, url.port, timeout=_ANSWER, context=context
                )
            else:
                made = http.client.HTTPConnection(host, url.port, timeout=_ANSWER)
            try:
                path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
                made.request("GET", path, headers={"User-Agent": "nacre", "Connection": "close"})
                return made.getresponse().status
            finally:
                made.close()
        except (OSError, http.client.HTTPException, ValueError):
            return None
