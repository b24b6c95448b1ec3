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
from nacre.engine.loop_context import LoopContext
from nacre.engine.run import Run
from nacre.eventloop import Callback, Timer, now
from nacre.model.outcome import Outcome
from nacre.model.plan import MIB, Command, Keep, Limits, Plan, Streams
from nacre.model.requests import Condition, ConditionMet
from nacre.process.process_tree import TaggedProcesses
from nacre.process.run_tag import Tag
from nacre.procfs import ports
from nacre.runs.access import tag_of
from nacre.store import output_range, stored_run
from nacre.store.run_record import runs_directory
from nacre.store.state_dir import state_dir
from nacre.text.search import SearchQuery, decode_result, encode_query

_POLL_INTERVAL: Final = 0.1  # seconds between two looks at what nobody tells us of
_HTTP_TIMEOUT: Final = 2.0  # for something to answer
_CPU_SECONDS: Final = 60  # seconds of one, for a pattern
_FULL_SCAN_EVERY: Final = 10  # one look in so many is a close one
_FIRST_ERROR_STATUS: Final = 500  # from this status on, it is there but not ready
_PROGRAM: Final = (
    b"import sys; sys.path.insert(0, sys.argv[1]); from nacre.text.search import main; main()"
)

if TYPE_CHECKING:
    from http.client import HTTPConnection

OnMet = Callable[[ConditionMet], None]


def build_search_plan(search: SearchQuery, data: bytes = b"", seconds: float | None = None) -> Plan:
    """A process that tries a pattern, and is killed after so many seconds. What it has for itself
    is bounded, too: its parent may be killed, and it with a pattern that never ends."""
    package = os.path.dirname(os.path.dirname(nacre.__file__ or ""))
    return Plan(
        command=Command(
            original=b"search",
            script=b'ulimit -t %d; exec "$P" -I -S -W ignore -c "$C" "$L"' % _CPU_SECONDS,
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
        stdin=encode_query(search) + data,
    )


class ConditionWatch:
    """`on_met` is called once, if at all; it goes on until it is stopped."""

    def __init__(
        self,
        conditions: tuple[Condition, ...],
        run: int,
        workspace: bytes,
        context: LoopContext,
        on_met: OnMet,
        *,
        since: int = 0,
    ) -> None:
        """`since`: only lines after this byte count."""
        self._stopped = False
        self._met = False
        self._on_stopped: Callback | None = None
        self._timer: Timer | None = None
        self._tag: Tag | None = None
        self._polls = 0
        self._conditions = conditions
        self._number = run
        self._workspace = workspace
        self._context = context
        self._on_met = on_met
        self._since = since
        self._searches: list[Run] = []
        self._probes: list[_HttpProbe] = []
        self._size, self._quiet_since = -1, now()

    def start(self) -> None:
        for each in self._conditions:
            if each.output is not None:
                self._search(each)
            elif each.http is not None:
                self._probe(each)
        looked_at = [each for each in self._conditions if each.output is None and each.http is None]
        if looked_at:
            self._poll(looked_at)

    def stop(self, then: Callback) -> None:
        """`then` is called once nothing of it is left; it must be driven until that."""
        self._stopped, self._on_stopped = True, then
        if self._timer is not None:
            self._timer.cancel()
        for probe in list(self._probes):
            probe.stop()
        for search in list(self._searches):
            search.cancel()
            search.cancel()  # at once
        self._finish_stop()

    def _finish_stop(self) -> None:
        # Who looks for a host far away may take his time, and is not waited for.
        busy = self._searches or any(probe.is_local for probe in self._probes)
        if self._stopped and not busy and self._on_stopped is not None:
            then, self._on_stopped = self._on_stopped, None
            then()

    def resume(self) -> None:
        for search in list(self._searches):
            search.resume()

    def _report(self, met: ConditionMet) -> None:
        if not self._stopped and not self._met:
            self._met = True
            self._on_met(met)

    # What is looked at.

    def _poll(self, condition: list[Condition]) -> None:
        if self._stopped:
            return
        for each in condition:
            found = self._check(each)
            if found is not None:
                self._report(found)
                return
        self._timer = self._context.loop.call_later(_POLL_INTERVAL, lambda: self._poll(condition))

    def _check(self, condition: Condition) -> ConditionMet | None:
        if condition.file is not None:
            return ConditionMet(condition=condition) if os.path.lexists(condition.file) else None
        if condition.idle is not None:
            return (
                ConditionMet(condition=condition)
                if self._idle_seconds() >= condition.idle
                else None
            )
        return self._find_listener(condition)

    def _idle_seconds(self) -> float:
        """Seconds without output. They count from the start of the run, not of the call: a run may
        wait for a slot, or for the warden to start."""
        try:
            status = os.stat(self._log)
        except OSError:  # the run has not started
            return 0.0
        size, age = status.st_size, time.time() - status.st_mtime
        if size != self._size:
            # What has come true before counts, too.
            before = max(0.0, age) if self._size < 0 else 0.0
            self._size, self._quiet_since = size, now() - before
        return now() - self._quiet_since

    def _find_listener(self, condition: Condition) -> ConditionMet | None:
        """A process of this run that listens on the port. Who looks from another network sees more;
        so we look closely now and then, also when nobody seems to be there."""
        self._polls += 1
        if condition.port is None or (
            self._polls % _FULL_SCAN_EVERY and not ports.is_port_taken(condition.port)
        ):
            return None
        for pid, listens in ports.find_ports(self._members()).items():
            if condition.port in listens:
                return ConditionMet(condition=condition, pid=pid)
        return None

    def _members(self) -> list[int]:
        """The processes of this run."""
        if self._tag is None:
            try:
                self._tag = tag_of(stored_run.find_run(self._number, self._workspace))
            except (stored_run.NoSuchRun, OSError):
                return []
        try:
            return (
                [] if self._tag is None else [e.pid for e in TaggedProcesses(self._tag).members()]
            )
        except OSError:
            return []

    @property
    def _log(self) -> str:
        return f"{runs_directory(state_dir())}/r{self._number}/output"

    # What is waited for elsewhere.

    def _search(self, condition: Condition) -> None:
        wanted = SearchQuery(
            pattern=condition.output or "",
            path=self._log,
            offset=self._since,
            first=self._first_line(),
            watch=True,
        )
        plan = build_search_plan(wanted)
        search = Run(
            "u0",
            plan,
            self._context,
            on_outcome=lambda outcome: self._on_search_end(search, condition, outcome),
        )
        self._searches.append(search)
        search.start()

    def _on_search_end(self, search: Run, condition: Condition, outcome: Outcome) -> None:
        self._searches.remove(search)
        for found in decode_result(outcome.output.head, 1).found if not self._stopped else ():
            self._report(ConditionMet(condition=condition, line=found.line, text=found.text))
        self._finish_stop()

    def _first_line(self) -> int:
        """That the first byte to look at belongs to."""
        if not self._since:
            return 1
        try:
            run = stored_run.find_run(self._number, self._workspace)
            with run.open() as source:
                return output_range.count_newlines(source, self._since, run.line_index()) + 1
        except (stored_run.NoSuchRun, OSError):
            return 1

    def _probe(self, condition: Condition) -> None:
        probe = _HttpProbe(condition.http or "")
        probe.on_end = partial(
            self._context.loop.post, partial(self._on_probe_end, condition, probe)
        )
        self._probes.append(probe)
        probe.start()

    def _on_probe_end(self, condition: Condition, probe: "_HttpProbe") -> None:
        """It is over: something has answered, or we have stopped it."""
        self._probes.remove(probe)
        if probe.status is not None and not self._stopped:
            stranger = self._foreign_listener(probe.port) if probe.is_local else None
            self._report(
                ConditionMet(condition=condition, status=probe.status, foreign_pid=stranger)
            )
        self._finish_stop()

    def _foreign_listener(self, port: int) -> int | None:
        """Who answers there, if that is nobody of this run."""
        listens, ours = ports.find_listeners(port), set(self._members())
        return None if not listens or ours & set(listens) else listens[0]


class _HttpProbe(threading.Thread):
    """Asks again and again, until something answers."""

    on_end: Callable[[], object]

    def __init__(self, url: str) -> None:

        from urllib.parse import urlsplit  # few need it

        super().__init__(name="nacre-http", daemon=True)
        self.status: int | None = None
        self._connection: HTTPConnection | None = None
        self._url = urlsplit(url)
        self._stop_event = threading.Event()

    @property
    def port(self) -> int:
        return self._url.port or (443 if self._url.scheme == "https" else 80)

    @property
    def is_local(self) -> bool:
        host = self._url.hostname or ""
        return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")

    def stop(self) -> None:
        """Also when it is just being answered, a byte at a time."""
        self._stop_event.set()
        connection = self._connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(2)

    def run(self) -> None:
        try:
            while not self._stop_event.is_set():
                status = self._try_once()
                if (
                    status is not None
                    and status < _FIRST_ERROR_STATUS
                    and not self._stop_event.is_set()
                ):
                    self.status = status
                    return
                self._stop_event.wait(_POLL_INTERVAL)
        finally:
            self.on_end()

    def _try_once(self) -> int | None:
        from http.client import HTTPException

        url = self._url
        path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
        sock = self._connection = self._open_connection()
        try:
            sock.request("GET", path, headers={"User-Agent": "nacre", "Connection": "close"})
            return sock.getresponse().status
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            sock.close()

    def _open_connection(self) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection

        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme != "https":
            return HTTPConnection(host, port, timeout=_HTTP_TIMEOUT)
        import ssl

        # What is asked is whether it is there, of servers that sign for themselves.
        context = ssl._create_unverified_context()
        return HTTPSConnection(host, port, timeout=_HTTP_TIMEOUT, context=context)
