"""The requests of the tool `job` that only read: `ListRuns` and `ReadOutput`.

`build_status` builds the status (`RunStatus`) of a stored run. `read_output` and `list_runs` are
coroutines (see `runs/sequence`) that also ask the owners of live runs which runs wait for input.
Reading a run's output never consumes the output. Requests that act on a run are in `runs/interact`.
"""

import io
import os
import time
from collections.abc import Iterable
from typing import BinaryIO, Final

import msgspec

from nacre.engine.leftover_search import describe_processes
from nacre.model.events import Stream
from nacre.model.outcome import (
    Capture,
    SessionNotSaved,
    SessionResult,
    SessionSaved,
    SessionTaken,
    Survivor,
)
from nacre.model.plan import Keep, Plan
from nacre.model.refusals import NotFound, Refused, Unavailable
from nacre.model.requests import (
    REPORT_KEEP,
    Activity,
    Between,
    Excerpt,
    Last,
    Listing,
    ListRuns,
    MatchedLine,
    Matches,
    Matching,
    ReadOutput,
    RunProcesses,
    RunStatus,
    Since,
    WaitsForInput,
)
from nacre.procfs import processes
from nacre.procfs.ports import find_ports
from nacre.procfs.processes import Process
from nacre.runs.access import RunControl, find_run, tag_of
from nacre.runs.conditions import build_search_plan, run_search
from nacre.runs.sequence import after, all_of, first_of
from nacre.store import listing, output_range
from nacre.store.journal import EndEntry
from nacre.store.stored_run import NoSuchRun, StoredRun
from nacre.text.clean import drop_partial_end
from nacre.text.search import SearchQuery, decode_result

_NOTHING: Final = Keep(whole=0, head=0, tail=0)
_SEARCH_SECONDS: Final = 20.0  # seconds that a search of a run's output may take
# seconds by which a search process may exceed its limit `_SEARCH_SECONDS` before nacre stops it
_SEARCH_GRACE: Final = 2.0
# seconds within which the process that owns a run must report whether the run waits for input
_INPUT_WAIT_TIME: Final = 1.0
_LONGEST_ESCAPE: Final = 64  # maximum bytes of a terminal escape sequence


async def list_runs(request: ListRuns, control: RunControl) -> Listing:
    """Raises Refused."""
    try:
        runs = listing.list_runs(control.workspace, request.last)
    except OSError as error:
        raise Refused(Unavailable(problem=f"the runs cannot be listed: {error}")) from None
    waiting = await _find_input_waits(runs, control)
    live = [run for run in runs if run.ending is None]
    found = find_members(live)
    left = find_leftovers(runs)
    statuses = []
    for run in runs:
        status = build_status(run, Excerpt(capture=run.capture(_NOTHING)), left[run.name])
        status = with_activity(status, run, found.get(run.name, ()))
        statuses.append(_with_input_wait(status, waits=run.name in waiting))
    return Listing(runs=tuple(statuses))


async def read_output(request: ReadOutput, control: RunControl) -> Listing:
    """Raises Refused."""
    run = find_or_refuse(request.run, control)
    try:
        with open_output(run) as source:
            if isinstance(request.part, Matching):
                plan = _plan_search(run, source, request.part, request.max_bytes)
                first = request.part.between.first
                outcome = await run_search(plan, control.context)
                status = build_status(run, _decode_matches(outcome.output.head, first))
            else:
                status = build_status(run, _read_part(run, source, request))
    except (NoSuchRun, OSError) as error:
        raise Refused(Unavailable(problem=str(error))) from None
    waiting = await _find_input_waits([run], control)
    status = with_activity(status, run)
    return Listing(runs=(_with_input_wait(status, waits=bool(waiting)),))


def find_or_refuse(name: str, control: RunControl) -> StoredRun:
    """Raises Refused."""
    try:
        return find_run(name, control.workspace)
    except (NoSuchRun, OSError):
        raise Refused(NotFound(run=name)) from None


async def _find_input_waits(runs: list[StoredRun], control: RunControl) -> set[str]:
    """Return the ids of the runs that wait for input, without runs whose owner does not answer in
    time."""
    waiting: set[str] = set()

    async def peek(run: StoredRun) -> None:
        if await control.waits_for_input(run):
            waiting.add(run.name)

    may_wait = [run for run in runs if run.ending is None and run.start_entry.open_stdin]
    if may_wait:
        await first_of(all_of(*map(peek, may_wait)), after(_INPUT_WAIT_TIME))
    return waiting


def _with_input_wait(status: RunStatus, *, waits: bool) -> RunStatus:
    return msgspec.structs.replace(status, event=WaitsForInput()) if waits else status


def build_status(
    run: StoredRun, output: Excerpt | Matches, left: tuple[Survivor, ...] | None = None
) -> RunStatus:
    """Build the status of a run; `output` is the part of the run's output that the status includes.
    `left` holds the processes that outlived the run's shell; None means that `build_status`
    searches for these processes."""
    ended = run.end_entry
    return RunStatus(
        run=run.name,
        command=run.start_entry.command,
        cwd=run.start_entry.cwd,
        seconds=run.seconds,
        ending=run.ending,
        output=output,
        total=run.capture(_NOTHING),
        processes=RunProcesses(
            left_running=find_leftovers([run])[run.name] if left is None else left,
            terminated=ended.terminated if ended else (),
        ),
        open_stdin=run.start_entry.open_stdin,
        out_of_memory=ended is not None and ended.out_of_memory,
        session=None if ended is None else _session_result(ended),
        session_taken_from=ended.session_taken_from if ended else "",
        session_errexit=ended is not None and ended.session_errexit,
        pipelines=ended.pipelines if ended else (),
        stored=ended is None or ended.output.complete,
    )


def _session_result(ended: EndEntry) -> SessionResult | None:
    if ended.session_taken:
        return SessionTaken()
    if ended.session_saved is None:
        return None
    return SessionSaved() if ended.session_saved else SessionNotSaved()


def with_activity(
    status: RunStatus, run: StoredRun, members: Iterable[Process] | None = None
) -> RunStatus:
    """Add to the status of a live run what its processes do: `members` are the run's processes;
    None means that `with_activity` searches for them."""
    if run.ending is not None:
        return status
    found = [*(find_members([run]).get(run.name, ()) if members is None else members)]
    limit, queued = run.start_entry.timeout, is_queued(run, found)
    return msgspec.structs.replace(
        status,
        activity=_build_activity(run, found),
        queued=queued,
        timeout_in=None if limit is None or queued else max(0.0, limit - run.seconds),
    )


def is_queued(run: StoredRun, members: Iterable[Process] | None = None) -> bool:
    """Return whether the shell of a live run is not spawned yet. Only a warden queues runs whose
    start entry is written. `members` are the run's processes; None means to search for them."""
    found = find_members([run]).get(run.name, ()) if members is None else members
    is_live = run.ending is None and run.owner is not None and run.owner.kind == "warden"
    return is_live and not [*found]


def read_activity(name: str, workspace: bytes) -> Activity | None:
    """Return what the processes of a live run do; None if the run is unknown or has no process."""
    try:
        run = find_run(name, workspace)
    except (NoSuchRun, OSError):
        return None
    return _build_activity(run, find_members([run]).get(name, []))


def _build_activity(run: StoredRun, members: list[Process]) -> Activity | None:
    if not members:
        return None
    shell = run.start_entry.shell
    pids = [each.pid for each in members]
    return Activity(
        pid=shell.pid if shell is not None and shell.pid in pids else min(pids),
        processes=len(members),
        cpu_seconds=sum(map(processes.cpu_seconds, pids)),
        idle_seconds=_idle_seconds(run),
        ports=_open_ports(pids),
        stopped=all(each.state == "T" for each in members),
    )


def _open_ports(pids: list[int]) -> tuple[int, ...]:
    try:
        return tuple(sorted({port for each in find_ports(pids).values() for port in each}))
    except OSError:  # for example if this process has no free descriptor at the moment
        return ()


def _idle_seconds(run: StoredRun) -> float | None:
    """Return the seconds since the run last wrote output; None if it has written nothing."""
    try:
        status = os.stat(run.path(Stream.OUTPUT))
    except OSError:
        return None
    return max(0.0, time.time() - status.st_mtime) if status.st_size else None


def find_leftovers(runs: list[StoredRun]) -> dict[str, tuple[Survivor, ...]]:
    """Return, for each run, the live processes that outlived the run's shell, with the TCP ports on
    which they listen."""
    left = [run for run in runs if run.end_entry is not None and run.end_entry.left_running]
    found = find_members(left)
    return {run.name: describe_processes(found.get(run.name, ())) for run in runs}


def find_members(runs: Iterable[StoredRun]) -> dict[str, list[Process]]:
    """Return the live processes of each run, found in one scan of /proc; if /proc is unreadable,
    return an empty list for each run."""
    tags = {run.name: tag for run in runs if (tag := tag_of(run)) is not None}
    found: dict[str, list[Process]] = {name: [] for name in tags}
    try:
        table = processes.read_all_processes() if tags else {}
    except OSError:
        return found
    for process in table.values():
        locks = processes.soft_locks(process.pid) if process.alive else None
        for name, tag in tags.items():
            if locks is not None and process.pid != os.getpid() and tag.includes(locks):
                found[name].append(process)
    return found


# Functions that search a run's output.


def _plan_search(run: StoredRun, source: BinaryIO, part: Matching, max_bytes: int) -> Plan:
    path, stored = run.path(Stream.OUTPUT), run.stored_stream(Stream.OUTPUT)
    on_disk = os.path.exists(path)
    first = part.between.first
    query = SearchQuery(
        pattern=part.pattern,
        path=path if on_disk else None,
        offset=output_range.find_line_start(source, first, run.line_index()),
        first=first,
        last=part.between.last,
        context=part.context,
        max_bytes=max_bytes,
        seconds=_SEARCH_SECONDS,
        hidden=stored.hidden if stored else (),
    )
    data = b""
    if not on_disk:
        source.seek(query.offset)
        data = source.read()
    return build_search_plan(query, data, _SEARCH_SECONDS + _SEARCH_GRACE)


def _decode_matches(data: bytes, first: int) -> Matches:
    result = decode_result(data, first)
    found = tuple(
        MatchedLine(line=each.line, text=each.text, matches=each.matches) for each in result.found
    )
    return Matches(found=found, complete=result.complete, line=result.line)


# Functions that read a part of a run's output.


def open_output(run: StoredRun) -> BinaryIO:
    """Open the run's output; return an empty file for a live run without output so far. Raises
    NoSuchRun, OSError."""
    try:
        return run.open()
    except NoSuchRun:
        # The output of a live run that a host process owns is only in the memory of that process.
        elsewhere = run.owner is not None and run.owner.kind == "host"
        if run.ending is not None or elsewhere:
            raise
        return io.BytesIO()


def _read_part(run: StoredRun, source: BinaryIO, request: ReadOutput) -> Excerpt:
    whole = run.capture(_NOTHING)
    match request.part:
        case Since(cursor=cursor):
            return _read_page(run, source, whole, min(cursor, whole.size), request.max_bytes)
        case Last(lines=count):
            return _read_lines(run, source, whole, max(1, whole.lines - count + 1), whole.lines)
        case Between(first=first, last=wanted):
            last = whole.lines if wanted is None else min(wanted, whole.lines)
            return _read_lines(run, source, whole, first, last)
        case _:
            raise AssertionError(request.part)


def _read_page(
    run: StoredRun, source: BinaryIO, whole: Capture, start: int, max_bytes: int
) -> Excerpt:
    line = output_range.count_newlines(source, start, run.line_index()) + 1
    source.seek(start)
    data = output_range.read_exactly(source, min(max_bytes, whole.size - start))
    if start + len(data) < whole.size:
        data = _drop_partial_escape(drop_partial_end(data)) or data
    return Excerpt(
        capture=_build_capture(data, b"", len(data), data.count(b"\n"), whole),
        line=line,
        byte=start,
        complete=start + len(data) >= whole.size,
    )


def _drop_partial_escape(data: bytes) -> bytes:
    """Remove an incomplete terminal escape sequence from the end of the data."""
    escape = data.rfind(b"\x1b", max(0, len(data) - _LONGEST_ESCAPE))
    if escape < 0 or any(0x40 <= byte <= 0x7E and byte != 0x5B for byte in data[escape + 1 :]):
        return data
    return data[:escape]


def _read_lines(run: StoredRun, source: BinaryIO, whole: Capture, first: int, last: int) -> Excerpt:
    at_end = last >= whole.lines
    part = Between(first=first, last=None if at_end else last)
    start, end = output_range.locate(source, part, run.line_index())
    newlines = max(0, last - first + 1) - (at_end and whole.unterminated and end > start)
    capture = _read_window(source, start, end, newlines, whole, REPORT_KEEP)
    return Excerpt(capture=capture, line=first, byte=start)


def read_from(run: StoredRun, source: BinaryIO, start: int, keep: Keep) -> Excerpt:
    """Read a run's output from the byte `start` on."""
    whole = run.capture(_NOTHING)
    start = min(start, whole.size)
    before = output_range.count_newlines(source, start, run.line_index())
    capture = _read_window(source, start, whole.size, whole.newlines - before, whole, keep)
    return Excerpt(capture=capture, line=before + 1, byte=start)


def _read_window(
    source: BinaryIO, start: int, end: int, newlines: int, whole: Capture, keep: Keep
) -> Capture:
    size = end - start
    source.seek(start)
    if size <= keep.whole:
        return _build_capture(output_range.read_exactly(source, size), b"", size, newlines, whole)
    head = output_range.read_exactly(source, keep.head)
    source.seek(end - keep.tail)
    return _build_capture(head, output_range.read_exactly(source, keep.tail), size, newlines, whole)


def _build_capture(head: bytes, tail: bytes, size: int, newlines: int, whole: Capture) -> Capture:
    data = tail or head
    return Capture(
        head=head,
        tail=tail,
        size=size,
        newlines=newlines,
        unterminated=bool(data) and not data.endswith(b"\n"),
        saved=whole.saved,  # `saved.problem` says why the stored output is incomplete
    )
