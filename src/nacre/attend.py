"""Seeing to runs that were handed back: wait for the first of them, have one read something, send
signals, end some. Everything is waited for like a command."""

import os
from functools import partial
from typing import Final

import msgspec

from nacre import asks
from nacre.asks import Evidence, Job, Listing, No, Reached, Until
from nacre.engine.engine import Engine
from nacre.engine.ground import Ground
from nacre.engine.supervise import Supervised
from nacre.look import KEEP, Answer, Asked, Listed, Looking, from_byte, job_of, left_by, opened
from nacre.loop import Call, Timer
from nacre.outcome import Capture, Outcome, Survivor
from nacre.reach import Reach
from nacre.refusals import Unavailable
from nacre.script.paths import at
from nacre.store.reading import NoSuchRun, Run
from nacre.watch import Watch

_MORE: Final = 0.5  # seconds after its own patience in which a wait comes back by itself
_ANSWER: Final = 5.0  # in which who runs it takes what is written, or a signal
_SILENT: Final = Unavailable(
    problem="whoever runs it does not answer (is its warden stopped?); nothing was done, or it is "
    "done later"
)


def attended(
    ask: asks.JobAsk, workspace: bytes, engine: Engine, ground: Ground, answer: Answer
) -> Supervised:
    reach = Reach(engine, workspace)
    match ask:
        case asks.List():
            return Listed(ask, reach, ground, answer)
        case asks.Look():
            return Looking(ask, reach, ground, answer)
        case asks.Attend():
            return Attending(ask, reach, ground, answer)


class Attending(Asked):
    _timer: Timer | None = None
    _stopped = False

    def __init__(self, ask: asks.Attend, reach: Reach, ground: Ground, answer: Answer) -> None:
        super().__init__(reach, ground, answer)
        self._ask = ask
        self._parts: list[Supervised] = []
        self._watches: list[Watch] = []
        self._since: dict[str, int] = {}  # of each, only what it has said after that
        self._left: dict[str, tuple[Survivor, ...]] = {}  # what each had left running
        self._past: set[str] = set()  # who had ended, with all that it had started
        self._busy: set[str] = set()  # who is being written to, signalled or ended
        self._asking: set[str] = set()
        self._fired: dict[str, Evidence] = {}

    def begin(self) -> None:
        found = [self._found(name) for name in dict.fromkeys(self._ask.runs)]
        runs = [run for run in found if run is not None]
        if len(runs) < len(found):
            return  # that was refused
        ask = self._ask
        acts = ask.signal is not None or ask.text is not None or ask.eof
        for run in runs:
            # Whoever does something wants to see what comes of that.
            said = (run.size() or 0) if acts else 0
            self._since[run.name] = said if ask.since is None else ask.since
        if not acts:
            self._wait(runs)
            return
        self._left = left_by(runs)
        self._timer = self._ground.loop.after(_ANSWER + (ask.grace or 0.0), self._unanswered)
        self._busy = {run.name for run in runs}
        for run in runs:
            self._act(run)

    def work(self) -> None:
        for part in list(self._parts):
            part.work()
        for watch in list(self._watches):
            watch.work()

    def cancel(self, number: int = 15) -> None:
        self._stop(lambda: super(Attending, self).cancel(number))

    # Doing something first.

    def _act(self, run: Run) -> None:
        ask, ground, done = self._ask, self._ground, partial(self._done, run.name)
        if ask.signal is None:
            text = ask.text or b""
            self._begin(self._reach.writing(run, ground, done, text, eof=ask.eof))
        elif run.state is not None and not self._left[run.name]:
            self._past.add(run.name)
            self._rested(run.name)
        elif ask.grace is None:
            self._begin(self._reach.signalling(run, ground, done, ask.signal))
        else:
            ended = partial(self._ended, run.name)
            self._begin(self._reach.ending(run, ground, ended, ask.signal, ask.grace))

    def _ended(self, name: str, outcome: Outcome | None) -> None:
        del outcome  # the store has it
        self._rested(name)

    def _done(self, name: str, answer: Reached) -> None:
        """It was written, or the signal was sent; or why not."""
        if isinstance(answer, No):
            self._stop(lambda: self._refuse(answer.refusal))
        else:
            self._rested(name)

    def _rested(self, name: str) -> None:
        self._busy.discard(name)
        if not self._busy and not self._stopped:
            found = [self._found(each) for each in self._since]
            self._wait([run for run in found if run is not None])

    def _unanswered(self) -> None:
        self._stop(lambda: self._refuse(_SILENT))

    # Waiting.

    def _begin(self, part: Supervised) -> None:
        if not self._stopped:
            self._parts.append(part)
            part.begin()

    def _wait(self, runs: list[Run]) -> None:
        if self._stopped:
            return
        patience = self._ask.patience
        may_ask = any(run.state is None and run.begun.open_stdin for run in runs)
        if any(run.state is not None for run in runs) or (not patience and not may_ask):
            self._finish()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._ground.loop.after(patience + _MORE, self._finish)
        for run in runs:
            asked = partial(self._asks, run.name)
            self._begin(
                self._reach.waiting(run, self._ground, self._one_ended, patience, asked=asked)
            )
            if self._ask.until and not self._stopped:
                self._watch(run)

    def _watch(self, run: Run) -> None:
        watch = Watch(
            _placed(self._ask.until, run),
            run.number,
            self._reach.workspace,
            self._ground,
            partial(self._fire, run.name),
            since=self._since[run.name],
        )
        self._watches.append(watch)
        watch.begin()

    def _one_ended(self, outcome: Outcome | None) -> None:
        del outcome  # the store has it
        self._finish()

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
        if self._timer is not None:
            self._timer.cancel()
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
        for name in self._since:
            run = self._found(name)
            if run is None:
                return
            jobs.append(self._job(run))
        self._settle(Listing(jobs=tuple(jobs)))

    def _job(self, run: Run) -> Job:
        since = self._since[run.name]
        try:
            if since:
                with opened(run) as source:
                    job = from_byte(run, source, since)
            else:
                job = job_of(run, run.capture(KEEP))
        except (NoSuchRun, OSError):
            job = job_of(run, Capture())
        gone = self._left.get(run.name, ())
        return msgspec.structs.replace(
            job,
            asks=run.name in self._asking and run.state is None,
            fired=self._fired.get(run.name),
            past=run.name in self._past,
            put_down=tuple(each for each in gone if each.pid not in _pids(job.left_running)),
        )


def _pids(survivors: tuple[Survivor, ...]) -> set[int]:
    return {each.pid for each in survivors}


def _placed(until: tuple[Until, ...], run: Run) -> tuple[Until, ...]:
    """With files from where the command runs."""
    place = os.fsencode(run.begun.cwd)
    return tuple(
        each if each.file is None else msgspec.structs.replace(each, file=at(place, each.file))
        for each in until
    )
