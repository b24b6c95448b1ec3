"""Looking at runs that were handed back: which there are, and what they have said. Nothing is used
up by that. Everything is waited for like a command."""

import io
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import BinaryIO, Final

import msgspec

from nacre import asks, proc
from nacre.asks import Between, Found, Job, Last, Listing, Matching, No, Reached, Running, Since
from nacre.engine.ground import Ground
from nacre.engine.run import Run as OwnRun
from nacre.engine.survivors import survivors
from nacre.events import Stream
from nacre.loop import Timer
from nacre.outcome import Capture, Outcome, Survivor
from nacre.plan import KIB, MIB, Keep
from nacre.proc import Process
from nacre.reach import Reach, tag_of
from nacre.refusals import AnyRefusal, NotFound, NotWaited, Unavailable
from nacre.search import Search, told
from nacre.store import listing, reading
from nacre.store.reading import NoSuchRun, Run
from nacre.text import without_cut_end
from nacre.watch import searching

KEEP: Final = Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB)
_NOTHING: Final = Keep(whole=0, head=0, tail=0)
_SEARCH: Final = 20.0  # seconds that a pattern may take
_GRACE: Final = 2.0  # and more, until the process for it is killed
_GLANCE: Final = 1.0  # in which whoever runs it says whether it waits for input
_ESCAPE: Final = 64  # bytes; a sequence for the terminal is not longer

Answer = Callable[[Listing | No], None]


class Asked:
    """What is answered once, and is not what it asks about."""

    name = ""
    _over = False

    def __init__(self, reach: Reach, ground: Ground, answer: Answer) -> None:
        self._reach = reach
        self._ground = ground
        self._answer = answer

    def signal(self, number: int) -> None:
        """What is sent to whoever waits is not for the runs."""

    def cancel(self, number: int = 15) -> None:
        del number
        self._refuse(NotWaited())

    def work(self) -> None:
        """There is nothing that an interrupt could have left undone."""

    def _found(self, name: str) -> Run | None:
        """Refuses what is not there."""
        try:
            return self._reach.find(name)
        except (NoSuchRun, OSError):
            self._refuse(NotFound(run=name))
            return None

    def _refuse(self, refusal: AnyRefusal) -> None:
        self._settle(No(refusal=refusal))

    def _settle(self, answer: Listing | No) -> None:
        if not self._over:
            self._over = True
            self._answer(answer)


# What there is to say of a run.


def job_of(run: Run, output: Capture, left: tuple[Survivor, ...] | None = None) -> Job:
    """What there is to say of a run, with this of its output."""
    ended = run.ended
    return Job(
        run=run.name,
        command=run.begun.command,
        cwd=run.begun.cwd,
        begun=run.begun.time,
        seconds=run.seconds,
        state=run.state,
        output=output,
        left_running=left_by([run])[run.name] if left is None else left,
        put_down=ended.put_down if ended else (),
        out_of_memory=ended is not None and ended.out_of_memory,
        stored=ended is None or ended.output.whole,
        open_stdin=run.begun.open_stdin,
        lines=output.lines,
        size=output.size,
    )


def left_by(runs: list[Run]) -> dict[str, tuple[Survivor, ...]]:
    """Of what those that have ended had left running, who still is, and where each listens."""
    left = [run for run in runs if run.ended is not None and run.ended.left_running]
    found = members_of(left)
    return {run.name: survivors(found.get(run.name, ())) for run in runs}


def members_of(runs: Iterable[Run]) -> dict[str, list[Process]]:
    """Who lives of each, in one look at all processes; nobody, if we cannot look."""
    tags = {run.name: tag for run in runs if (tag := tag_of(run)) is not None}
    found: dict[str, list[Process]] = {name: [] for name in tags}
    try:
        table = proc.everyone() if tags else {}
    except OSError:
        return found
    for process in table.values():
        locks = proc.soft_locks(process.pid) if process.alive else None
        for name, tag in tags.items():
            if locks is not None and process.pid != os.getpid() and tag.covers(locks):
                found[name].append(process)
    return found


class Questions:
    """Which of these wait for input: asked of who runs them, all at once, and not for long."""

    _timer: Timer | None = None

    def __init__(
        self, runs: list[Run], reach: Reach, ground: Ground, then: Callable[[set[str]], None]
    ) -> None:
        self._ground = ground
        self._then: Callable[[set[str]], None] | None = then
        self._asking: set[str] = set()
        self._parts = {
            run.name: reach.glance(run, ground, partial(self._told, run.name))
            for run in runs
            if run.state is None and run.begun.open_stdin
        }
        self._left = set(self._parts)

    def begin(self) -> None:
        if not self._left:
            self._finish()
            return
        self._timer = self._ground.loop.after(_GLANCE, self.stop)
        for part in self._parts.values():
            part.begin()

    def work(self) -> None:
        for part in self._parts.values():
            part.work()

    def stop(self) -> None:
        """Who has not said anything does not ask."""
        for name in self._left:
            self._parts[name].cancel()
        self._finish()

    def _told(self, name: str, answer: Reached) -> None:
        if isinstance(answer, Running) and answer.asks:
            self._asking.add(name)
        self._left.discard(name)
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        then, self._then = self._then, None
        if self._timer is not None:
            self._timer.cancel()
        if then is not None:
            then(self._asking)


class Listed(Asked):
    """All that live, and the last that do not."""

    _questions: Questions | None = None

    def __init__(self, ask: asks.List, reach: Reach, ground: Ground, answer: Answer) -> None:
        super().__init__(reach, ground, answer)
        self._last = ask.last

    def begin(self) -> None:
        try:
            found = listing.listed(self._reach.workspace, self._last)
        except OSError as error:
            self._refuse(Unavailable(problem=f"the runs cannot be listed: {error}"))
            return
        told_all = partial(self._list, found)
        self._questions = Questions(found, self._reach, self._ground, told_all)
        self._questions.begin()

    def work(self) -> None:
        if self._questions is not None:
            self._questions.work()

    def cancel(self, number: int = 15) -> None:
        super().cancel(number)
        if self._questions is not None:
            self._questions.stop()

    def _list(self, runs: list[Run], asking: set[str]) -> None:
        live = [run for run in runs if run.state is None]
        members = {name: survivors(found) for name, found in members_of(live).items()}
        left = left_by(runs)
        jobs = []
        for run in runs:
            job = job_of(run, run.capture(_NOTHING), left[run.name])
            ports = {port for each in members.get(run.name, ()) for port in each.ports}
            jobs.append(
                msgspec.structs.replace(job, asks=run.name in asking, ports=tuple(sorted(ports)))
            )
        self._settle(Listing(jobs=tuple(jobs)))


# What it has said.


class Looking(Asked):
    _search: OwnRun | None = None
    _unwanted = False
    _questions: Questions | None = None

    def __init__(self, ask: asks.Look, reach: Reach, ground: Ground, answer: Answer) -> None:
        super().__init__(reach, ground, answer)
        self._ask = ask

    def begin(self) -> None:
        run = self._found(self._ask.run)
        if run is None:
            return
        try:
            with opened(run) as source:
                if isinstance(self._ask.part, Matching):
                    self._begin_search(run, source, self._ask.part)
                else:
                    self._show(run, _part_of(run, source, self._ask))
        except (NoSuchRun, OSError) as error:
            self._refuse(Unavailable(problem=str(error)))

    def work(self) -> None:
        for part in (self._search, self._questions):
            if part is not None:
                part.work()

    def cancel(self, number: int = 15) -> None:
        if self._search is not None:
            self._unwanted = True
            self._search.cancel()
            self._search.cancel()  # at once
            return
        super().cancel(number)
        if self._questions is not None:
            self._questions.stop()

    def _show(self, run: Run, job: Job) -> None:
        def answer(asking: set[str]) -> None:
            made = msgspec.structs.replace(job, asks=True) if asking else job
            self._settle(Listing(jobs=(made,)))

        self._questions = Questions([run], self._reach, self._ground, answer)
        self._questions.begin()

    def _begin_search(self, run: Run, source: BinaryIO, wanted: Matching) -> None:
        path, kept = run.path(Stream.OUTPUT), run.stored(Stream.OUTPUT)
        on_disk = os.path.exists(path)
        first = wanted.between.first
        search = Search(
            pattern=wanted.pattern,
            path=path if on_disk else None,
            offset=reading.line_start(source, first, run.index()),
            first=first,
            last=wanted.between.last,
            context=wanted.context,
            most=self._ask.most,
            seconds=_SEARCH,
            marks=kept.marks if kept else (),
        )
        data = b""
        if not on_disk:
            source.seek(search.offset)
            data = source.read()
        self._search = OwnRun(
            "u0",
            searching(search, data, _SEARCH + _GRACE),
            self._ground,
            answer=lambda outcome: self._searched(run, first, outcome),
        )
        self._search.begin()

    def _searched(self, run: Run, first: int, outcome: Outcome) -> None:
        self._search = None
        if self._unwanted:
            super().cancel()
            return
        said = told(outcome.output.head, first)
        found = tuple(
            Found(line=each.line, text=each.text, matches=each.matches) for each in said.found
        )
        job = job_of(run, run.capture(_NOTHING))
        self._show(run, msgspec.structs.replace(job, found=found, over=said.over, line=said.line))


def opened(run: Run) -> BinaryIO:
    """Its output; of a run that has said nothing yet, nothing. Raises NoSuchRun, OSError."""
    try:
        return run.open()
    except NoSuchRun:
        # What another program runs may have said something, and nobody else knows it.
        elsewhere = run.owner is not None and run.owner.kind == "host"
        if run.state is not None or elsewhere:
            raise
        return io.BytesIO()


def _part_of(run: Run, source: BinaryIO, ask: asks.Look) -> Job:
    whole = run.capture(_NOTHING)
    match ask.part:
        case Since(cursor=cursor):
            return _page(run, source, whole, min(cursor, whole.size), ask.most)
        case Last(lines=count):
            return _between(run, source, whole, max(1, whole.lines - count + 1), whole.lines)
        case Between(first=first, last=wanted):
            last = whole.lines if wanted is None else min(wanted, whole.lines)
            return _between(run, source, whole, first, last)
        case _:
            raise AssertionError(ask.part)


def _page(run: Run, source: BinaryIO, whole: Capture, start: int, most: int) -> Job:
    line = reading.newlines_before(source, start, run.index()) + 1
    source.seek(start)
    data = reading.read_up_to(source, min(most, whole.size - start))
    if start + len(data) < whole.size:
        data = _without_cut_sequence(without_cut_end(data)) or data
    output = _capture(data, b"", len(data), data.count(b"\n"), whole)
    job = _placed(run, output, whole, line, start)
    return msgspec.structs.replace(job, over=start + len(data) >= whole.size)


def _without_cut_sequence(data: bytes) -> bytes:
    """Without the beginning of a colour code whose end is not there."""
    escape = data.rfind(b"\x1b", max(0, len(data) - _ESCAPE))
    if escape < 0 or any(0x40 <= byte <= 0x7E and byte != 0x5B for byte in data[escape + 1 :]):
        return data
    return data[:escape]


def _between(run: Run, source: BinaryIO, whole: Capture, first: int, last: int) -> Job:
    index = run.index()
    start = reading.line_start(source, first, index)
    at_end = last >= whole.lines
    end = whole.size if at_end else reading.line_start(source, last + 1, index)
    end = max(start, end)
    newlines = max(0, last - first + 1) - (at_end and whole.unterminated and end > start)
    return _placed(run, _window(source, start, end, newlines, whole), whole, first, start)


def from_byte(run: Run, source: BinaryIO, start: int) -> Job:
    """All that it has said from there on."""
    whole = run.capture(_NOTHING)
    start = min(start, whole.size)
    before = reading.newlines_before(source, start, run.index())
    output = _window(source, start, whole.size, whole.newlines - before, whole)
    return _placed(run, output, whole, before + 1, start)


def _placed(run: Run, output: Capture, whole: Capture, line: int, byte: int) -> Job:
    job = job_of(run, output)
    return msgspec.structs.replace(job, line=line, byte=byte, lines=whole.lines, size=whole.size)


def _window(source: BinaryIO, start: int, end: int, newlines: int, whole: Capture) -> Capture:
    size = end - start
    source.seek(start)
    if size <= KEEP.whole:
        return _capture(reading.read_up_to(source, size), b"", size, newlines, whole)
    head = reading.read_up_to(source, KEEP.head)
    source.seek(end - KEEP.tail)
    return _capture(head, reading.read_up_to(source, KEEP.tail), size, newlines, whole)


def _capture(head: bytes, tail: bytes, size: int, newlines: int, whole: Capture) -> Capture:
    data = tail or head
    return Capture(
        head=head,
        tail=tail,
        size=size,
        newlines=newlines,
        unterminated=bool(data) and not data.endswith(b"\n"),
        saved=whole.saved,  # it says what is wrong with it
    )
