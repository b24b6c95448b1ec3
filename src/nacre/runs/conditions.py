"""Waiting until a run meets one of several conditions: a line, a port, a URL, a file, no output.

The process that waits checks the conditions, not the process that owns the run. A check cannot
block the event loop: a regular expression is tried in a process of its own, and an HTTP request is
sent by a thread. Ports, files and idle output are polled.
"""

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Never

import nacre
from nacre.engine.loop_context import LoopContext
from nacre.engine.run import Run
from nacre.eventloop import now
from nacre.model.outcome import Outcome
from nacre.model.plan import MIB, Command, Keep, Limits, Plan, Streams
from nacre.model.requests import (
    Condition,
    ConditionMet,
    FileExists,
    FileFound,
    HttpAnswered,
    HttpAnswers,
    LineMatched,
    OutputIdle,
    OutputMatches,
    OutputStopped,
    PortOpen,
    PortOpened,
)
from nacre.process.process_tree import TaggedProcesses
from nacre.process.run_tag import Tag
from nacre.procfs import ports
from nacre.runs.access import tag_of
from nacre.runs.sequence import Answer, Steps, WaitCancelled, after, first_of
from nacre.store import output_range, stored_run
from nacre.store.run_record import runs_directory
from nacre.store.state_dir import state_dir
from nacre.text.search import SearchQuery, decode_result, encode_query

if TYPE_CHECKING:
    from http.client import HTTPConnection

_POLL_INTERVAL: Final = 0.1  # seconds between two checks of a port, a file or the idle time
_HTTP_TIMEOUT: Final = 2.0  # seconds for one HTTP request
_CPU_SECONDS: Final = 60  # CPU seconds of a search process
_FULL_SCAN_EVERY: Final = 10  # port checks between two that scan the sockets of the run's processes
_FIRST_ERROR_STATUS: Final = 500  # from this HTTP status on, the server is not ready
_PROGRAM: Final = (
    b"import sys; sys.path.insert(0, sys.argv[1]); from nacre.text.search import main; main()"
)


def build_search_plan(search: SearchQuery, data: bytes = b"", seconds: float | None = None) -> Plan:
    """Build the plan of a process that searches with a pattern, killed after `seconds`.

    The process also limits its own CPU time: a pattern that never finishes would otherwise run on
    after nacre was killed.
    """
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
        streams=Streams.SEPARATE,  # an error message of Python must not mix with the result
        limits=Limits(timeout=seconds, grace=0.0),
        keep=Keep(whole=4 * MIB, head=4 * MIB, tail=0),
        stdin=encode_query(search) + data,
    )


async def run_search(plan: Plan, context: LoopContext) -> Outcome:
    """Run a search process to its end. Cancelling kills the process and waits for its end."""
    answer: Answer[Outcome] = Answer()
    answer.operation = search = Run("u0", plan, context, on_outcome=answer.deliver)
    try:
        search.start()
        return await answer
    except WaitCancelled:
        search.cancel()
        search.cancel()  # the second cancel sends KILL
        await answer
        raise


async def wait_until_met(
    conditions: tuple[Condition, ...],
    run: int,
    workspace: bytes,
    context: LoopContext,
    *,
    since: int = 0,
) -> ConditionMet:
    """Wait for the first condition that is met; only output after the byte `since` counts."""
    watched = _WatchedRun(run, workspace)
    return await first_of(*(_wait_for(each, watched, context, since) for each in conditions))


def _wait_for(
    condition: Condition, run: "_WatchedRun", context: LoopContext, since: int
) -> Steps[ConditionMet]:
    match condition:
        case OutputMatches():
            return _wait_for_line(condition, run, context, since)
        case PortOpen():
            return _wait_for_port(condition, run)
        case HttpAnswers():
            return _wait_for_http(condition, run, context)
        case FileExists():
            return _wait_for_file(condition)
        case OutputIdle():
            return _wait_for_idle(condition, run)


class _WatchedRun:
    """The run whose conditions are checked."""

    def __init__(self, number: int, workspace: bytes) -> None:
        self._number = number
        self._workspace = workspace
        self._tag: Tag | None = None

    @property
    def log(self) -> str:
        return f"{runs_directory(state_dir())}/r{self._number}/output"

    def log_status(self) -> os.stat_result | None:
        """Return the status of the log file; None when the run has not started."""
        try:
            return os.stat(self.log)
        except OSError:
            return None

    def members(self) -> list[int]:
        """Return the pids of the run's processes; none when the run has not started."""
        try:
            if self._tag is None:
                self._tag = tag_of(stored_run.find_run(self._number, self._workspace))
            return (
                [] if self._tag is None else [e.pid for e in TaggedProcesses(self._tag).members()]
            )
        except (stored_run.NoSuchRun, OSError):
            return []

    def line_at(self, byte: int) -> int:
        """Return the number of the line that has this byte of the output."""
        if not byte:
            return 1
        try:
            run = stored_run.find_run(self._number, self._workspace)
            with run.open() as source:
                return output_range.count_newlines(source, byte, run.line_index()) + 1
        except (stored_run.NoSuchRun, OSError):
            return 1


# Conditions that are polled.


async def _wait_for_file(condition: FileExists) -> ConditionMet:
    while not os.path.lexists(condition.path):
        await after(_POLL_INTERVAL)
    return FileFound(condition=condition)


async def _wait_for_idle(condition: OutputIdle, run: _WatchedRun) -> ConditionMet:
    """Wait until the run has written nothing for a while, counted from its start at the earliest.

    The start of the call does not count: the run may wait for a slot, or for the warden to start.
    """
    size, idle_since = -1, now()
    while True:
        status = run.log_status()
        if status is not None and status.st_size != size:
            # Idle time before the first check counts.
            before = max(0.0, time.time() - status.st_mtime) if size < 0 else 0.0
            size, idle_since = status.st_size, now() - before
        if status is not None and now() - idle_since >= condition.seconds:
            return OutputStopped(condition=condition)
        await after(_POLL_INTERVAL)


async def _wait_for_port(condition: PortOpen, run: _WatchedRun) -> ConditionMet:
    """Wait until a process of the run listens on the port.

    The cheap check sees only this process's own network namespace. So each tenth check scans the
    run's processes even when the port seems to be free.
    """
    for check in itertools.count(1):
        if check % _FULL_SCAN_EVERY == 0 or ports.is_port_taken(condition.port):
            for pid, listens in ports.find_ports(run.members()).items():
                if condition.port in listens:
                    return PortOpened(condition=condition, pid=pid)
        await after(_POLL_INTERVAL)
    raise AssertionError


# Conditions that another process or a thread waits for.


async def _wait_for_line(
    condition: OutputMatches, run: _WatchedRun, context: LoopContext, since: int
) -> ConditionMet:
    query = SearchQuery(
        pattern=condition.pattern,
        path=run.log,
        offset=since,
        first=run.line_at(since),
        watch=True,
    )
    outcome = await run_search(build_search_plan(query), context)
    for found in decode_result(outcome.output.head, 1).found:
        return LineMatched(condition=condition, line=found.line, text=found.text)
    return await _never()  # the search process failed, or used up its CPU time


async def _wait_for_http(
    condition: HttpAnswers, run: _WatchedRun, context: LoopContext
) -> ConditionMet:
    ended: Answer[None] = Answer()
    probe = _HttpProbe(condition.url, on_end=lambda: context.loop.post(lambda: ended.deliver(None)))
    try:
        probe.start()
        await ended
    except WaitCancelled:
        probe.stop()
        if probe.is_local:  # a remote server may take long; the thread then ends in the background
            await ended
        raise
    if probe.status is None:
        return await _never()
    foreign = _foreign_listener(probe.port, run) if probe.is_local else None
    return HttpAnswered(condition=condition, status=probe.status, foreign_pid=foreign)


def _foreign_listener(port: int, run: _WatchedRun) -> int | None:
    """Return the process that listens on the port, when it is not part of the run."""
    listens, members = ports.find_listeners(port), set(run.members())
    return None if not listens or members & set(listens) else listens[0]


async def _never() -> Never:
    await after(None)
    raise AssertionError


class _HttpProbe(threading.Thread):
    """Thread that sends GET requests until one is answered with a status below 500."""

    def __init__(self, url: str, on_end: Callable[[], object]) -> None:
        from urllib.parse import urlsplit  # imported lazily: most calls have no URL

        super().__init__(name="nacre-http", daemon=True)
        self._on_end = on_end
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
        """End the thread, also while a server sends its answer byte by byte."""
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
            self._on_end()

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

        # The probe only asks whether the server answers, so a self-signed certificate is enough.
        context = ssl._create_unverified_context()
        return HTTPSConnection(host, port, timeout=_HTTP_TIMEOUT, context=context)
