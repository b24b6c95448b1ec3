"""What can be asked about runs that were handed back: list them, look at what they have said, wait
for the first of them, have it read something, end it. Everything is waited for like a command.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Final

import msgspec

from nacre import asks
from nacre.asks import (
    Between,
    Evidence,
    Found,
    Job,
    Last,
    Listing,
    Matching,
    No,
    Reached,
    Running,
    Since,
)
from nacre.engine.engine import Engine
from nacre.engine.ground import Ground
from nacre.engine.run import Run as OwnRun
from nacre.engine.supervise import Supervised
from nacre.engine.survivors import survivors
from nacre.events import Stream
from nacre.loop import Call, Timer
from nacre.outcome import Capture, Outcome, Survivor, TimedOut
from nacre.plan import KIB, MIB, Keep
from nacre.process.tag import read as read_tag
from nacre.process.tree import Remains
from nacre.reach import Reach
from nacre.refusals import AnyRefusal, NotFound, Unavailable
from nacre.store import listing, reading
from nacre.store.reading import NoSuchRun, Run
from nacre.watch import Watch, searching

_KEEP: Final = Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB)
_NOTHING: Final = Keep(whole=0, head=0, tail=0)
_SEARCH: Final = 20.0  # seconds that a pattern may take

Answer = Callable[[Listing | No], None]


def attended(
    ask: asks.JobAsk, workspace: bytes, engine: Engine, ground: Ground, answer: Answer
) -> Supervised:
    match ask:
        case asks.List():
            return _Listing(ask, Reach(engine, workspace), ground, answer)
        case asks.Look():
            return _Looking(ask, Reach(engine, workspace), ground, answer)
        case asks.Attend():
            return _Attending(ask, workspace, engine, ground, answer)


class _Supervised:
    """What is answered once, and is not what it asks about."""

    name = ""
    _over = False

    def __init__(self, workspace: bytes, answer: Answer) -> None:
        self._workspace = workspace
        self._answer = answer

    def signal(self, number: int) -> None:
        """What is sent to whoever waits is not for the runs."""

    def cancel(self, number: int = 15) -> None:
        del number
        self._refuse(Unavailable(problem="the call was cancelled; the runs go on"))

    def work(self) -> None:
        """There is nothing that an interrupt could have left undone."""

    def _found(self, name: str) -> Run | None:
        """Refuses what is not there."""
        try:
            return reading.find(reading.number(name), self._workspace)
        except (NoSuchRun, OSError):
            self._refuse(NotFound(run=name))
            return None

    def _refuse(self, refusal: AnyRefusal) -> None:
        self._settle(No(refusal=refusal))

    def _settle(self, answer: Listing | No) -> None:
        if not self._over:
            self._over = True
            self._answer(answer)


class _Questions:
    """Which of these wait for input: asked of who runs them, all at once."""

    def __init__(
        self, runs: list[Run], reach: Reach, ground: Ground, then: Callable[[set[str]], None]
    ) -> None:
        self._then = then
        self._left = 0
        self._asking: set[str] = set()
        self._parts = [
            reach.glance(run, ground, partial(self._told, run.name))
            for run in runs
            if _may_ask(run)
        ]

    def begin(self) -> None:
        self._left = len(self._parts)
        if not self._left:
            self._then(self._asking)
        for part in self._parts:
            part.begin()

    def work(self) -> None:
        for part in self._parts:
            part.work()

    def stop(self) -> None:
        for part in self._parts:
            part.cancel()

    def _told(self, name: str, answer: Reached) -> None:
        if isinstance(answer, Running) and answer.asks:
            self._asking.add(name)
        self._left -= 1
        if not self._left:
            self._then(self._asking)


class _Listing(_Supervised):
    _questions: _Questions | None = None

    def __init__(self, ask: asks.List, reach: Reach, ground: Ground, answer: Answer) -> None:
        super().__init__(reach.workspace, answer)
        self._last = ask.last
        self._reach = reach
        self._ground = ground

    def begin(self) -> None:
        try:
            found = listing.listed(self._workspace, self._last)
        except OSError as error:
            self._refuse(Unavailable(problem=f"the runs cannot be listed: {error}"))
            return
        told = partial(self._list, found)
        self._questions = _Questions(found, self._reach, self._ground, told)
        self._questions.begin()

    def work(self) -> None:
        if self._questions is not None:
            self._questions.work()

    def cancel(self, number: int = 15) -> None:
        super().cancel(number)
        if self._questions is not None:
            self._questions.stop()

    def _list(self, runs: list[Run], asking: set[str]) -> None:
        jobs = [job_of(run, run.capture(_NOTHING), asks=run.name in asking) for run in runs]
        self._settle(Listing(jobs=tuple(jobs)))


def job_of(run: Run, output: Capture, **more: object) -> Job:
    """What there is to say of a run, with this of its output."""
    ended = run.ended
    made = Job(
        run=run.name,
        command=run.begun.command,
        cwd=run.begun.cwd,
        begun=run.begun.time,
        seconds=run.seconds,
        state=run.state,
        output=output,
        left_running=_left(run),
        ended=ended.put_down if ended else (),
        out_of_memory=ended is not None and ended.out_of_memory,
        stored=ended is None or ended.output.whole,
        open_stdin=run.begun.open_stdin,
        lines=output.lines,
        size=output.size,
    )
    return msgspec.structs.replace(made, **more) if more else made


def _left(run: Run) -> tuple[Survivor, ...]:
    """Of what it had left running, who still is, and where each listens by now."""
    if run.ended is None or not run.ended.left_running:
        return ()
    mark = read_tag(run.begun.tag)
    if mark is None:
        return run.ended.left_running
    try:
        return survivors(Remains(mark).members())
    except OSError:
        return run.ended.left_running


# Looking.


class _Looking(_Supervised):
    _search: OwnRun | None = None
    _unwanted = False
    _questions: _Questions | None = None

    def __init__(self, ask: asks.Look, reach: Reach, ground: Ground, answer: Answer) -> None:
        super().__init__(reach.workspace, answer)
        self._ask = ask
        self._reach = reach
        self._ground = ground

    def begin(self) -> None:
        run = self._found(self._ask.run)
        if run is None:
            return
        try:
            with _open(run) as source:
                if isinstance(self._ask.part, Matching):
                    self._begin_search(run, source, self._ask.part)
                else:
                    self._show(run, _part_of(run, source, self._ask))
        except (NoSuchRun, OSError) as error:
            self._refuse(Unavailable(problem=str(error)))

    def _show(self, run: Run, job: Job) -> None:
        def told(asking: set[str]) -> None:
            made = msgspec.structs.replace(job, asks=True) if asking else job
            self._settle(Listing(jobs=(made,)))

        self._questions = _Questions([run], self._reach, self._ground, told)
        self._questions.begin()

    def work(self) -> None:
        for part in (self._search, self._questions):
            if part is not None:
                part.work()

    def cancel(self, number: int = 15) -> None:
        if self._search is not None:
            self._unwanted = True
            self._search.cancel()
            self._search.cancel()
            return
        super().cancel(number)
        if self._questions is not None:
            self._questions.stop()

    def _begin_search(self, run: Run, source: BinaryIO, wanted: Matching) -> None:
        first, last = wanted.between.first, wanted.between.last
        offset = reading.line_start(source, first, run.index())
        file = os.path.exists(run.path(Stream.OUTPUT))
        kept = run.stored(Stream.OUTPUT)
        asked = {
            "watch": False,
            "path": run.path(Stream.OUTPUT) if file else None,
            "marks": kept.marks if kept else (),
            "offset": offset,
            "pattern": wanted.pattern,
            "context": wanted.context,
            "first": first,
            "last": last,
            "most": 2 * self._ask.most,
        }
        data = b""
        if not file:
            source.seek(offset)
            data = source.read()
        plan = searching(msgspec.json.encode(asked) + b"\n" + data, _SEARCH)
        self._search = OwnRun(
            "u0", plan, self._ground, answer=lambda outcome: self._searched(run, outcome)
        )
        self._search.begin()

    def _searched(self, run: Run, outcome: Outcome) -> None:
        self._search = None
        if self._unwanted:
            super().cancel()
            return
        *found, end = [msgspec.json.decode(line) for line in outcome.output.head.splitlines()] or [
            None
        ]
        if end is None and not isinstance(outcome.ending, TimedOut):
            problem = "the output could not be searched: the process for it did not start"
            self._refuse(Unavailable(problem=problem))
            return
        if isinstance(end, list):  # it was stopped before it could say so
            found.append(end)
        lines = tuple(Found(line=n, text=text, matches=hit) for n, text, hit in found)
        job = job_of(run, run.capture(_NOTHING), found=lines, over=end == "over")
        self._show(run, job)


def _open(run: Run) -> BinaryIO:
    """Its output; of a run that has said nothing yet, nothing."""
    import io

    try:
        return run.open()
    except NoSuchRun:
        if run.state is not None:
            raise
        return io.BytesIO()


def _part_of(run: Run, source: BinaryIO, ask: asks.Look) -> Job:
    whole = run.capture(_NOTHING)
    size, index = whole.size, run.index()
    match ask.part:
        case Since(cursor=cursor):
            start = min(cursor, size)
            end = min(size, start + ask.most)
            line = reading.newlines_before(source, start, index) + 1
            source.seek(start)
            data = reading.read_up_to(source, end - start)
            output = _capture(data, b"", len(data), data.count(b"\n"))
            over = end == size
            return job_of(
                run, output, line=line, byte=start, lines=whole.lines, size=size, over=over
            )
        case Last(lines=count):
            first = max(1, whole.lines - count + 1)
            last = whole.lines
        case Between(first=first, last=wanted):
            last = whole.lines if wanted is None else min(wanted, whole.lines)
        case _:
            raise AssertionError(ask.part)
    start = reading.line_start(source, first, index)
    end = size if last >= whole.lines else reading.line_start(source, last + 1, index)
    newlines = max(0, last - first + 1) - (end == size and whole.unterminated and end > start)
    output = _window(source, start, max(start, end), newlines)
    return job_of(run, output, line=first, byte=start, lines=whole.lines, size=size)


def _from(run: Run, source: BinaryIO, start: int) -> Job:
    """All that it has said from this byte on."""
    whole = run.capture(_NOTHING)
    start = min(start, whole.size)
    before = reading.newlines_before(source, start, run.index())
    output = _window(source, start, whole.size, whole.newlines - before)
    return job_of(run, output, line=before + 1, byte=start, lines=whole.lines, size=whole.size)


def _window(source: BinaryIO, start: int, end: int, newlines: int) -> Capture:
    size = end - start
    source.seek(start)
    if size <= _KEEP.whole:
        return _capture(reading.read_up_to(source, size), b"", size, newlines)
    head = reading.read_up_to(source, _KEEP.head)
    source.seek(end - _KEEP.tail)
    return _capture(head, reading.read_up_to(source, _KEEP.tail), size, newlines)


def _capture(head: bytes, tail: bytes, size: int, newlines: int) -> Capture:
    data = tail or head
    unterminated = bool(data) and not data.endswith(b"\n")
    return Capture(head=head, tail=tail, size=size, newlines=newlines, unterminated=unterminated)


# Waiting.


class _Attending(_Supervised):
    _deadline: Timer | None = None
    _since = 0
    _stopped = False

    def __init__(
        self,
        ask: asks.Attend,
        workspace: bytes,
        engine: Engine,
        ground: Ground,
        answer: Answer,
    ) -> None:
        super().__init__(workspace, answer)
        self._ask = ask
        self._ground = ground
        self._reach = Reach(engine, workspace)
        self._parts: list[Supervised] = []
        self._watches: list[Watch] = []
        self._asking: set[str] = set()
        self._fired: dict[str, Evidence] = {}

    def begin(self) -> None:
        runs = []
        for name in self._ask.runs:
            run = self._found(name)
            if run is None:
                return
            runs.append(run)
        ask, first = self._ask, runs[0]
        self._since = ask.since or 0
        if ask.text is not None or ask.eof:
            if ask.since is None:
                self._since = first.size() or 0  # what it says to that
            text, ground = ask.text or b"", self._ground
            self._begin(self._reach.writing(first, ground, self._done, text, ask.eof))
        elif ask.signal is not None and ask.grace is not None:
            ending = self._reach.ending(
                first, self._ground, lambda _: self._finish(), ask.signal, ask.grace
            )
            self._begin(ending)
        elif ask.signal is not None:
            self._begin(self._reach.signalling(first, self._ground, self._done, ask.signal))
        else:
            self._wait(runs)

    def work(self) -> None:
        for part in self._parts:
            part.work()
        for watch in self._watches:
            watch.work()

    def cancel(self, number: int = 15) -> None:
        self._stop(lambda: super(_Attending, self).cancel(number))

    def _begin(self, part: Supervised) -> None:
        if not self._stopped:
            self._parts.append(part)
            part.begin()

    def _done(self, answer: Reached) -> None:
        """It was written, or the signal was sent; or why not."""
        if isinstance(answer, No):
            self._stop(lambda: self._refuse(answer.refusal))
        else:
            run = self._found(self._ask.runs[0])
            if run is not None:
                self._wait([run])

    def _wait(self, runs: list[Run]) -> None:
        if self._stopped:
            return
        if self._ask.patience == 0 and not any(map(_may_ask, runs)):
            self._finish()
            return
        self._deadline = self._ground.loop.after(self._ask.patience + 0.5, self._finish)
        for run in runs:
            if run.state is not None:
                self._finish()
                return
            part = self._reach.waiting(
                run,
                self._ground,
                lambda _: self._finish(),
                self._ask.patience,
                asked=lambda name=run.name: self._asks(name),  # type: ignore[misc]
            )
            self._begin(part)
            if self._ask.until and not self._stopped:
                watch = Watch(
                    self._ask.until,
                    run.number,
                    self._workspace,
                    self._ground,
                    lambda evidence, name=run.name: self._fire(name, evidence),  # type: ignore[misc]
                    since=self._since,
                )
                self._watches.append(watch)
                watch.begin()

    def _asks(self, name: str) -> None:
        self._asking.add(name)
        self._finish()

    def _fire(self, name: str, evidence: Evidence) -> None:
        self._fired[name] = evidence
        self._finish()

    def _stop(self, then: Call) -> None:
        """Wait for nothing any more; `then` is called when nothing of that is left."""
        if self._stopped:
            return
        self._stopped = True
        if self._deadline is not None:
            self._deadline.cancel()
        for part in self._parts:
            part.cancel()
        left = len(self._watches)

        def rest() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for watch in self._watches:
            watch.stop(rest)
        if not self._watches:
            then()

    def _finish(self) -> None:
        self._stop(self._tell)

    def _tell(self) -> None:
        jobs = []
        for name in self._ask.runs:
            run = self._found(name)
            if run is None:
                return
            jobs.append(self._job(run))
        self._settle(Listing(jobs=tuple(jobs)))

    def _job(self, run: Run) -> Job:
        try:
            if self._since:
                with _open(run) as source:
                    job = _from(run, source, self._since)
            else:
                job = job_of(run, run.capture(_KEEP))
        except (NoSuchRun, OSError):
            job = job_of(run, run.capture(_NOTHING))
        asking = run.name in self._asking and run.state is None
        return msgspec.structs.replace(job, asks=asking, fired=self._fired.get(run.name))


def _may_ask(run: Run) -> bool:
    return run.state is None and run.begun.open_stdin
