"""Waiting until a run meets one of several conditions: an output line, an open port, a URL that
answers, a file that exists, or idle output.

Whether a condition is met is checked by the process that waits for the condition, not by the
process that owns the run. A check of a condition cannot block the event loop: a separate process
tries a regular expression, and a thread sends an HTTP request. Conditions about ports, files and
idle output are checked by polling.
"""

import itertools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Never

import nacre
from nacre.engine.loop_context import LoopContext
from nacre.engine.run import Run
from nacre.eventloop import now
from nacre.model.events import Stream
from nacre.model.outcome import Outcome
from nacre.model.plan import MIB, Command, Keep, Limits, Plan, Streams
from nacre.model.wait_conditions import (
    AllMet,
    Condition,
    ConditionMet,
    Conditions,
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
    SingleMet,
)
from nacre.process.process_tree import TaggedProcesses
from nacre.process.run_tag import Tag
from nacre.procfs import ports
from nacre.runs.access import tag_of
from nacre.runs.sequence import Answer, Steps, after, all_of, first_of
from nacre.store import output_range, stored_run
from nacre.store.run_record import runs_directory
from nacre.store.state_dir import state_dir
from nacre.text.search import SearchQuery, decode_result, encode_query

if TYPE_CHECKING:
    from http.client import HTTPConnection

_POLL_INTERVAL: Final = 0.1  # seconds between two checks of a port, a file or the idle time
_FINAL_CHECK: Final = 2.0  # maximum seconds for checking a condition after the end of a run
_START_POLL: Final = 0.01  # seconds until the second check whether a run has started
# Seconds of watching after which the conditions of a live run need no final check.
_LEAST_WATCH: Final = 0.5
_HTTP_CHECK: Final = 0.5  # maximum seconds for checking a URL after the end of a run
_HTTP_TIMEOUT: Final = 2.0  # timeout of one HTTP request in seconds
_MAX_HTTP_PAUSE: Final = 1.0  # maximum seconds between two requests to a server that answers
_CPU_SECONDS: Final = 60  # maximum CPU seconds of a process that searches output
_FULL_SCAN_EVERY: Final = 10  # every tenth port check scans the sockets of the run's processes
_FIRST_ERROR_STATUS: Final = 500  # lowest HTTP status that means that the server is not ready
_PROGRAM: Final = (
    b"import sys; sys.path.insert(0, sys.argv[1]); from nacre.text.search import main; main()"
)


def build_search_plan(search: SearchQuery, data: bytes = b"", seconds: float | None = None) -> Plan:
    """Build the plan of a process that searches output with a pattern and is killed after
    `seconds`.

    The search process also limits its own CPU time; otherwise a regular expression whose match
    never finishes could keep the search process running after nacre was killed.
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
        streams=Streams.SEPARATE,  # an error message of Python must not mix with the search result
        limits=Limits(timeout=seconds, grace=0.0),
        keep=Keep(whole=4 * MIB, head=4 * MIB, tail=0),
        stdin=encode_query(search) + data,
    )


async def run_search(plan: Plan, context: LoopContext) -> Outcome:
    """Run a search process to its end. If this coroutine is cancelled, it kills the search process
    and waits for its end."""
    answer: Answer[Outcome] = Answer()
    answer.operation = search = Run("u0", plan, context, on_outcome=answer.deliver)
    try:
        search.start()
        return await answer
    except GeneratorExit:
        raise
    except BaseException:  # cancelled, or interrupted by Ctrl-C
        search.cancel()
        search.cancel()  # a second cancel sends KILL to the search process
        await answer
        raise


async def wait_until_met(
    conditions: Conditions,
    run: int,
    workspace: bytes,
    context: LoopContext,
    *,
    since: int = 0,
) -> ConditionMet:
    """Wait until the run meets the first of the conditions, or all of them if `conditions.all` is
    set. Patterns are searched only in the output from byte `since` on."""
    watched = _WatchedRun(run, workspace)
    await _wait_for_start(watched)
    waits = (_wait_for(each, watched, context, since) for each in conditions.listed)
    if conditions.all:
        return AllMet(met=tuple(await all_of(*waits)))
    return await first_of(*waits)


async def wait_after_end(
    conditions: Conditions,
    run: int,
    workspace: bytes,
    context: LoopContext,
    *,
    since: int = 0,
    wait_limit: float | None = None,
) -> ConditionMet | None:
    """Wait for the conditions of a run whose shell has exited, as long as a process of the run
    lives; return None if the conditions are not met in the end, or not within `wait_limit`
    seconds."""
    watched = _WatchedRun(run, workspace)
    if watched.members():
        met = await first_of(
            wait_until_met(conditions, run, workspace, context, since=since),
            _wait_for_no_process(watched),
            after(wait_limit),
        )
        was_watched = wait_limit is not None and wait_limit >= _LEAST_WATCH
        if met is not None or (was_watched and watched.members()):
            return met
    return await _check_once(conditions, watched, context, since)


async def _wait_for_start(run: "_WatchedRun") -> None:
    """Wait until the run has started: a queued run meets no condition."""
    pause = _START_POLL
    while run.size() is None:
        await after(pause)
        pause = min(2 * pause, _POLL_INTERVAL)


async def _wait_for_no_process(run: "_WatchedRun") -> None:
    while run.members():
        await after(_POLL_INTERVAL)


async def _check_once(
    conditions: Conditions, run: "_WatchedRun", context: LoopContext, since: int
) -> ConditionMet | None:
    """Check each condition once; return what was seen if the conditions are met, else None. A
    condition whose check takes too long counts as not met."""
    checks = (_check_one(each, run, context, since) for each in conditions.listed)
    found = await all_of(*(first_of(each, after(_FINAL_CHECK)) for each in checks))
    met = tuple(each for each in found if each is not None)
    if conditions.all:
        return AllMet(met=met) if len(met) == len(conditions.listed) else None
    return met[0] if met else None


async def _check_one(
    condition: Condition, run: "_WatchedRun", context: LoopContext, since: int
) -> SingleMet | None:
    match condition:
        case OutputMatches():
            return await _search_stored(condition, run, context, since)
        case PortOpen():
            return _find_port(condition, run)
        case HttpAnswers():
            return await first_of(_wait_for_http(condition, run, context), after(_HTTP_CHECK))
        case FileExists():
            return FileFound(condition=condition) if os.path.lexists(condition.path) else None
        case OutputIdle():
            return None


def _wait_for(
    condition: Condition, run: "_WatchedRun", context: LoopContext, since: int
) -> Steps[SingleMet]:
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
    """Run whose output log and processes are checked for the conditions of a wait."""

    def __init__(self, number: int, workspace: bytes) -> None:
        self._number = number
        self._workspace = workspace
        self._tag: Tag | None = None
        self._started = False

    @property
    def log(self) -> str:
        return f"{runs_directory(state_dir())}/r{self._number}/output"

    def size(self) -> int | None:
        """Return the size of the run's output; None when the run has not started."""
        self._started = self._started or bool(self.members())
        if self._started:
            with suppress(OSError):  # the output of a short run is only in the journal
                return os.stat(self.log).st_size
        try:
            run = stored_run.find_run(self._number, self._workspace)
        except (stored_run.NoSuchRun, OSError):
            return None
        return None if run.ending is None else run.size() or 0

    def members(self) -> list[int]:
        """Return the pids of the run's processes; an empty list when the run has not started."""
        try:
            if self._tag is None:
                self._tag = tag_of(stored_run.find_run(self._number, self._workspace))
            return (
                [] if self._tag is None else [e.pid for e in TaggedProcesses(self._tag).members()]
            )
        except (stored_run.NoSuchRun, OSError):
            return []

    def line_at(self, byte: int) -> int:
        """Return the number of the output line that contains this byte."""
        if not byte:
            return 1
        try:
            run = stored_run.find_run(self._number, self._workspace)
            with run.open() as source:
                return output_range.count_newlines(source, byte, run.line_index()) + 1
        except (stored_run.NoSuchRun, OSError):
            return 1

    def journal_data(self) -> bytes | None:
        """Return the output of the run if it is only in the journal, else None."""
        try:
            run = stored_run.find_run(self._number, self._workspace)
        except (stored_run.NoSuchRun, OSError):
            return None
        return None if os.path.exists(self.log) else run.journal_data(Stream.OUTPUT)


# Waits for the conditions that this process polls: a file, idle output, or an open port.


async def _wait_for_file(condition: FileExists) -> SingleMet:
    while not os.path.lexists(condition.path):
        await after(_POLL_INTERVAL)
    return FileFound(condition=condition)


async def _wait_for_idle(condition: OutputIdle, run: _WatchedRun) -> SingleMet:
    """Wait until the run has written nothing for `condition.seconds` from now on.

    Idle time is counted from the start of the wait, so that a caller that waits in a loop does not
    spin. The idle time of a queued run is counted from the start of the run.
    """
    last, idle_since = None, now()
    while True:
        size = run.size()
        if size != last or size is None:
            last, idle_since = size, now()
        elif now() - idle_since >= condition.seconds:
            return OutputStopped(condition=condition)
        await after(_POLL_INTERVAL)


async def _wait_for_port(condition: PortOpen, run: _WatchedRun) -> SingleMet:
    """Wait until a process of the run listens on the TCP port of the condition.

    The fast check `is_port_taken` sees only the network namespace of this process, so every tenth
    check scans the sockets of the run's processes, even if the port seems to be free.
    """
    for check in itertools.count(1):
        with suppress(OSError):  # for example if this process has no free descriptor at the moment
            if check % _FULL_SCAN_EVERY == 0 or ports.is_port_taken(condition.port):
                found = _find_port(condition, run)
                if found is not None:
                    return found
        await after(_POLL_INTERVAL)
    raise AssertionError


def _find_port(condition: PortOpen, run: _WatchedRun) -> PortOpened | None:
    with suppress(OSError):
        for pid, listens in ports.find_ports(run.members()).items():
            if condition.port in listens:
                return PortOpened(condition=condition, pid=pid)
    return None


# Waits for the conditions that a separate process or a thread checks: an output line, or a URL that
# answers.


async def _wait_for_line(
    condition: OutputMatches, run: _WatchedRun, context: LoopContext, since: int
) -> SingleMet:
    if run.journal_data() is not None:  # a short run has a log only if a leftover process prints
        stored = await _search_stored(condition, run, context, since)
        if stored is not None:
            return stored
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


async def _search_stored(
    condition: OutputMatches, run: _WatchedRun, context: LoopContext, since: int
) -> SingleMet | None:
    """Search the output that is stored now."""
    data = run.journal_data()
    query = SearchQuery(
        pattern=condition.pattern,
        path=run.log if data is None else None,
        offset=since,
        first=run.line_at(since),
        seconds=_FINAL_CHECK,
    )
    plan = build_search_plan(query, (data or b"")[since:], _FINAL_CHECK)
    outcome = await run_search(plan, context)
    for found in decode_result(outcome.output.head, 1).found:
        return LineMatched(condition=condition, line=found.line, text=found.text)
    return None


async def _wait_for_http(
    condition: HttpAnswers, run: _WatchedRun, context: LoopContext
) -> SingleMet:
    ended: Answer[None] = Answer()
    probe = _HttpProbe(condition.url, on_end=lambda: context.loop.post(lambda: ended.deliver(None)))
    try:
        probe.start()
        await ended
    except GeneratorExit:
        raise
    except BaseException:  # cancelled, or interrupted by Ctrl-C
        probe.stop()
        # When a wait for a URL is cancelled, nacre waits for the end of the thread that sends the
        # requests only if the URL is on this machine, because a request to a remote server may take
        # long to end.
        if probe.is_local and probe.ident is not None:
            await ended
        raise
    if probe.status is None:
        return await _never()
    foreign = _foreign_listener(probe.port, run) if probe.is_local else None
    return HttpAnswered(condition=condition, status=probe.status, foreign_pid=foreign)


def _foreign_listener(port: int, run: _WatchedRun) -> int | None:
    """Return the pid of a process outside the run that listens on this TCP port; None if no
    process, or a process of the run, listens on it."""
    try:
        listens, members = ports.find_listeners(port), set(run.members())
    except OSError:
        return None
    return None if not listens or members & set(listens) else listens[0]


async def _never() -> Never:
    await after(None)
    raise AssertionError


class _HttpProbe(threading.Thread):
    """Thread that sends GET requests until one is answered with a status below 500."""

    def __init__(self, url: str, on_end: Callable[[], object]) -> None:
        from urllib.parse import urlsplit  # lazy import: only a wait for a URL needs `urllib`

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
        """End the thread of the HTTP probe, even while a server sends its answer byte by byte."""
        self._stop_event.set()
        connection = self._connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(2)

    def run(self) -> None:
        try:
            pause = _POLL_INTERVAL
            while not self._stop_event.is_set():
                status = self._try_once()
                if (
                    status is not None
                    and status < _FIRST_ERROR_STATUS
                    and not self._stop_event.is_set()
                ):
                    self.status = status
                    return
                self._stop_event.wait(pause)
                # A server that answers logs each request, so the probe asks it less and less often.
                pause = _POLL_INTERVAL if status is None else min(2 * pause, _MAX_HTTP_PAUSE)
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

        # The HTTP probe only checks whether the server answers, so a self-signed certificate is
        # enough.
        context = ssl._create_unverified_context()
        return HTTPSConnection(host, port, timeout=_HTTP_TIMEOUT, context=context)
