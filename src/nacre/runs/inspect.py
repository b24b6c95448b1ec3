"""Looking at runs that were handed back: which there are, and what they have said. Nothing is used
up by that. Everything is waited for like a command."""

import io
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import BinaryIO, Final

import msgspec

from nacre.engine.leftover_search import describe_processes
from nacre.engine.loop_context import LoopContext
from nacre.engine.run import Run as OwnRun
from nacre.eventloop import Timer
from nacre.model import requests
from nacre.model.events import Stream
from nacre.model.outcome import Capture, Outcome, Survivor
from nacre.model.plan import KIB, MIB, Keep
from nacre.model.refusals import AnyRefusal, NotFound, NotWaited, Unavailable
from nacre.model.requests import (
    Between,
    Last,
    Listing,
    MatchedLine,
    Matching,
    Rejected,
    Response,
    Running,
    RunStatus,
    Since,
)
from nacre.procfs import processes
from nacre.procfs.processes import Process
from nacre.runs.access import RunAccess, tag_of
from nacre.runs.conditions import build_search_plan
from nacre.store import listing, output_range
from nacre.store.stored_run import NoSuchRun, StoredRun
from nacre.text.clean import drop_partial_end
from nacre.text.search import SearchQuery, decode_result

KEEP: Final = Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB)
_NOTHING: Final = Keep(whole=0, head=0, tail=0)
_SEARCH_SECONDS: Final = 20.0  # seconds that a pattern may take
_SEARCH_GRACE: Final = 2.0  # and more, until the process for it is killed
_INPUT_WAIT_TIME: Final = 1.0  # in which whoever runs it says whether it waits for input
_LONGEST_ESCAPE: Final = 64  # bytes; a sequence for the terminal is not longer

OnListing = Callable[[Listing | Rejected], None]


class ReadOnlyOperation:
    """What is answered once, and is not what it asks about."""

    name = ""

    def __init__(self, reach: RunAccess, context: LoopContext, answer: OnListing) -> None:
        self._done = False
        self._reach = reach
        self._context = context
        self._answer = answer

    def signal(self, number: int) -> None:
        """What is sent to whoever waits is not for the runs."""

    def cancel(self, number: int = 15) -> None:
        del number
        self._refuse(NotWaited())

    def resume(self) -> None:
        """There is nothing that an interrupt could have left undone."""

    def _find(self, name: str) -> StoredRun | None:
        """Refuses what is not there."""
        try:
            return self._reach.find(name)
        except (NoSuchRun, OSError):
            self._refuse(NotFound(run=name))
            return None

    def _refuse(self, refusal: AnyRefusal) -> None:
        self._settle(Rejected(refusal=refusal))

    def _settle(self, answer: Listing | Rejected) -> None:
        if not self._done:
            self._done = True
            self._answer(answer)


# What there is to say of a run.


def build_status(
    run: StoredRun, output: Capture, left: tuple[Survivor, ...] | None = None
) -> RunStatus:
    """What there is to say of a run, with this of its output."""
    ended = run.end_entry
    return RunStatus(
        run=run.name,
        command=run.start_entry.command,
        cwd=run.start_entry.cwd,
        started_at=run.start_entry.time,
        seconds=run.seconds,
        state=run.ending,
        output=output,
        left_running=find_leftovers([run])[run.name] if left is None else left,
        terminated=ended.terminated if ended else (),
        out_of_memory=ended is not None and ended.out_of_memory,
        stored=ended is None or ended.output.complete,
        open_stdin=run.start_entry.open_stdin,
        lines=output.lines,
        size=output.size,
    )


def find_leftovers(runs: list[StoredRun]) -> dict[str, tuple[Survivor, ...]]:
    """Of what those that have ended had left running, who still is, and where each listens."""
    left = [run for run in runs if run.end_entry is not None and run.end_entry.left_running]
    found = find_members(left)
    return {run.name: describe_processes(found.get(run.name, ())) for run in runs}


def find_members(runs: Iterable[StoredRun]) -> dict[str, list[Process]]:
    """Who lives of each, in one look at all processes; nobody, if we cannot look."""
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


class InputWaitPoll:
    """Which of these wait for input: asked of who runs them, all at once, and not for long."""

    def __init__(
        self,
        runs: list[StoredRun],
        reach: RunAccess,
        context: LoopContext,
        then: Callable[[set[str]], None],
    ) -> None:
        self._timer: Timer | None = None
        self._context = context
        self._on_done: Callable[[set[str]], None] | None = then
        self._waiting: set[str] = set()
        self._operations = {
            run.name: reach.peek_operation(run, context, partial(self._on_response, run.name))
            for run in runs
            if run.ending is None and run.start_entry.open_stdin
        }
        self._unanswered = set(self._operations)

    def start(self) -> None:
        if not self._unanswered:
            self._finish()
            return
        self._timer = self._context.loop.call_later(_INPUT_WAIT_TIME, self.stop)
        for part in self._operations.values():
            part.start()

    def resume(self) -> None:
        for part in self._operations.values():
            part.resume()

    def stop(self) -> None:
        """Who has not said anything does not ask."""
        for name in self._unanswered:
            self._operations[name].cancel()
        self._finish()

    def _on_response(self, name: str, answer: Response) -> None:
        if isinstance(answer, Running) and answer.waits_for_input:
            self._waiting.add(name)
        self._unanswered.discard(name)
        if not self._unanswered:
            self._finish()

    def _finish(self) -> None:
        then, self._on_done = self._on_done, None
        if self._timer is not None:
            self._timer.cancel()
        if then is not None:
            then(self._waiting)


class ListOperation(ReadOnlyOperation):
    """All that live, and the last that do not."""

    def __init__(
        self, request: requests.ListRuns, reach: RunAccess, context: LoopContext, answer: OnListing
    ) -> None:
        super().__init__(reach, context, answer)
        self._input_waits: InputWaitPoll | None = None
        self._last = request.last

    def start(self) -> None:
        try:
            found = listing.list_runs(self._reach.workspace, self._last)
        except OSError as error:
            self._refuse(Unavailable(problem=f"the runs cannot be listed: {error}"))
            return
        told_all = partial(self._list, found)
        self._input_waits = InputWaitPoll(found, self._reach, self._context, told_all)
        self._input_waits.start()

    def resume(self) -> None:
        if self._input_waits is not None:
            self._input_waits.resume()

    def cancel(self, number: int = 15) -> None:
        super().cancel(number)
        if self._input_waits is not None:
            self._input_waits.stop()

    def _list(self, runs: list[StoredRun], asking: set[str]) -> None:
        live = [run for run in runs if run.ending is None]
        members = {name: describe_processes(found) for name, found in find_members(live).items()}
        left = find_leftovers(runs)
        jobs = []
        for run in runs:
            job = build_status(run, run.capture(_NOTHING), left[run.name])
            ports = {port for each in members.get(run.name, ()) for port in each.ports}
            jobs.append(
                msgspec.structs.replace(
                    job, waits_for_input=run.name in asking, ports=tuple(sorted(ports))
                )
            )
        self._settle(Listing(runs=tuple(jobs)))


# What it has said.


class ReadOperation(ReadOnlyOperation):
    def __init__(
        self,
        request: requests.ReadOutput,
        reach: RunAccess,
        context: LoopContext,
        answer: OnListing,
    ) -> None:
        super().__init__(reach, context, answer)
        self._search: OwnRun | None = None
        self._cancelled = False
        self._input_waits: InputWaitPoll | None = None
        self._request = request

    def start(self) -> None:
        run = self._find(self._request.run)
        if run is None:
            return
        try:
            with open_output(run) as source:
                if isinstance(self._request.part, Matching):
                    self._begin_search(run, source, self._request.part)
                else:
                    self._show(run, _read_part(run, source, self._request))
        except (NoSuchRun, OSError) as error:
            self._refuse(Unavailable(problem=str(error)))

    def resume(self) -> None:
        for part in (self._search, self._input_waits):
            if part is not None:
                part.resume()

    def cancel(self, number: int = 15) -> None:
        if self._search is not None:
            self._cancelled = True
            self._search.cancel()
            self._search.cancel()  # at once
            return
        super().cancel(number)
        if self._input_waits is not None:
            self._input_waits.stop()

    def _show(self, run: StoredRun, job: RunStatus) -> None:
        def answer(asking: set[str]) -> None:
            status = msgspec.structs.replace(job, waits_for_input=True) if asking else job
            self._settle(Listing(runs=(status,)))

        self._input_waits = InputWaitPoll([run], self._reach, self._context, answer)
        self._input_waits.start()

    def _begin_search(self, run: StoredRun, source: BinaryIO, wanted: Matching) -> None:
        path, stored = run.path(Stream.OUTPUT), run.stored_stream(Stream.OUTPUT)
        on_disk = os.path.exists(path)
        first = wanted.between.first
        search = SearchQuery(
            pattern=wanted.pattern,
            path=path if on_disk else None,
            offset=output_range.find_line_start(source, first, run.line_index()),
            first=first,
            last=wanted.between.last,
            context=wanted.context,
            max_bytes=self._request.max_bytes,
            seconds=_SEARCH_SECONDS,
            hidden=stored.hidden if stored else (),
        )
        data = b""
        if not on_disk:
            source.seek(search.offset)
            data = source.read()
        self._search = OwnRun(
            "u0",
            build_search_plan(search, data, _SEARCH_SECONDS + _SEARCH_GRACE),
            self._context,
            on_outcome=lambda outcome: self._on_search_end(run, first, outcome),
        )
        self._search.start()

    def _on_search_end(self, run: StoredRun, first: int, outcome: Outcome) -> None:
        self._search = None
        if self._cancelled:
            super().cancel()
            return
        result = decode_result(outcome.output.head, first)
        found = tuple(
            MatchedLine(line=each.line, text=each.text, matches=each.matches)
            for each in result.found
        )
        job = build_status(run, run.capture(_NOTHING))
        self._show(
            run,
            msgspec.structs.replace(job, found=found, complete=result.complete, line=result.line),
        )


def open_output(run: StoredRun) -> BinaryIO:
    """Its output; of a run that has said nothing yet, nothing. Raises NoSuchRun, OSError."""
    try:
        return run.open()
    except NoSuchRun:
        # What another program runs may have said something, and nobody else knows it.
        elsewhere = run.owner is not None and run.owner.kind == "host"
        if run.ending is not None or elsewhere:
            raise
        return io.BytesIO()


def _read_part(run: StoredRun, source: BinaryIO, request: requests.ReadOutput) -> RunStatus:
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
) -> RunStatus:
    line = output_range.count_newlines(source, start, run.line_index()) + 1
    source.seek(start)
    data = output_range.read_exactly(source, min(max_bytes, whole.size - start))
    if start + len(data) < whole.size:
        data = _drop_partial_escape(drop_partial_end(data)) or data
    output = _build_capture(data, b"", len(data), data.count(b"\n"), whole)
    job = _with_position(run, output, whole, line, start)
    return msgspec.structs.replace(job, complete=start + len(data) >= whole.size)


def _drop_partial_escape(data: bytes) -> bytes:
    """Without the beginning of a colour code whose end is not there."""
    escape = data.rfind(b"\x1b", max(0, len(data) - _LONGEST_ESCAPE))
    if escape < 0 or any(0x40 <= byte <= 0x7E and byte != 0x5B for byte in data[escape + 1 :]):
        return data
    return data[:escape]


def _read_lines(
    run: StoredRun, source: BinaryIO, whole: Capture, first: int, last: int
) -> RunStatus:
    at_end = last >= whole.lines
    part = Between(first=first, last=None if at_end else last)
    start, end = output_range.locate(source, part, run.line_index())
    newlines = max(0, last - first + 1) - (at_end and whole.unterminated and end > start)
    return _with_position(
        run, _read_window(source, start, end, newlines, whole), whole, first, start
    )


def read_from(run: StoredRun, source: BinaryIO, start: int) -> RunStatus:
    """All that it has said from there on."""
    whole = run.capture(_NOTHING)
    start = min(start, whole.size)
    before = output_range.count_newlines(source, start, run.line_index())
    output = _read_window(source, start, whole.size, whole.newlines - before, whole)
    return _with_position(run, output, whole, before + 1, start)


def _with_position(
    run: StoredRun, output: Capture, whole: Capture, line: int, byte: int
) -> RunStatus:
    job = build_status(run, output)
    return msgspec.structs.replace(job, line=line, byte=byte, lines=whole.lines, size=whole.size)


def _read_window(source: BinaryIO, start: int, end: int, newlines: int, whole: Capture) -> Capture:
    size = end - start
    source.seek(start)
    if size <= KEEP.whole:
        return _build_capture(output_range.read_exactly(source, size), b"", size, newlines, whole)
    head = output_range.read_exactly(source, KEEP.head)
    source.seek(end - KEEP.tail)
    return _build_capture(head, output_range.read_exactly(source, KEEP.tail), size, newlines, whole)


def _build_capture(head: bytes, tail: bytes, size: int, newlines: int, whole: Capture) -> Capture:
    data = tail or head
    return Capture(
        head=head,
        tail=tail,
        size=size,
        newlines=newlines,
        unterminated=bool(data) and not data.endswith(b"\n"),
        saved=whole.saved,  # it says what is wrong with it
    )
