"""Running something in the warden for one who waits for more than its end: for a line, a port, for
what an earlier call with the same request id has begun."""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from nacre import asks
from nacre.asks import Earlier, Evidence, No, Reached, Running
from nacre.engine.engine import Engine
from nacre.engine.ground import Ground
from nacre.engine.supervise import Supervised
from nacre.loop import Call, Timer, now
from nacre.outcome import Outcome
from nacre.reach import Reach
from nacre.refusals import CalledOff, Unavailable
from nacre.store import reading
from nacre.store.reading import NoSuchRun, Run
from nacre.watch import Watch

_BEGINNING: Final = 5.0  # seconds that another may take to begin what it has claimed
_LOOK: Final = 0.02


class Handed(Supervised, Protocol):
    def enough(self) -> None:
        """Have it handed back now."""
        ...


class Pursuing:
    """Waited for like the run itself. Cancelled, it ends the run; but not one that somebody else
    has begun."""

    _part: Supervised | None = None
    _evidence: Evidence | None = None
    _watch: Watch | None = None
    _stopping: Watch | None = None
    _timer: Timer | None = None
    _over = False

    def __init__(
        self,
        ask: asks.Run,
        engine: Engine,
        ground: Ground,
        answer: Callable[[Reached], None],
        make: Callable[[Callable[[Reached], None]], Handed],
    ) -> None:
        """`make` makes the ask itself, and whoever it answers to is told. A request that others
        have begun is given as `Earlier` instead."""
        self._ask = ask
        self._engine = engine
        self._ground = ground
        self._answer = answer
        self._remote = make(self._answered)
        self.name = self._remote.name

    def begin(self) -> None:
        self._part = self._remote
        if self._ask.until and self._ask.number is not None:
            self._begin_watch(self._ask.number)
        self._remote.begin()

    def cancel(self, number: int = 15) -> None:
        if self._part is not None:
            self._part.cancel(number)
        else:  # it has not begun, or we wait for another to begin it
            self._settle(No(refusal=CalledOff()))

    def signal(self, number: int) -> None:
        if self._part is not None:
            self._part.signal(number)

    def work(self) -> None:
        for each in (self._part, self._watch, self._stopping):
            if each is not None:
                each.work()

    def _begin_watch(self, run: int) -> None:
        self._watch = Watch(self._ask.until, run, self._ask.workspace, self._ground, self._fire)
        self._watch.begin()

    def _fire(self, evidence: Evidence) -> None:
        self._evidence = evidence
        if self._part is self._remote:
            self._remote.enough()
        elif self._part is not None:
            self._part.cancel()  # that is only the waiting

    def _answered(self, answer: Reached) -> None:
        if isinstance(answer, Earlier):
            self._part = None
            self._stop(lambda: self._find(answer.run, now() + _BEGINNING))
        elif isinstance(answer, Running) and self._evidence is not None:
            self._settle(msgspec.structs.replace(answer, fired=self._evidence))
        else:
            self._settle(answer)

    def _find(self, name: str, deadline: float) -> None:
        """What an earlier call has begun, or is about to."""
        if self._over:
            return
        try:
            run = reading.find(reading.number(name), self._ask.workspace)
        except (NoSuchRun, OSError):
            if now() < deadline:
                self._timer = self._ground.loop.after(_LOOK, lambda: self._find(name, deadline))
            else:
                problem = f"{name} was asked for with the same request_id, and has not begun"
                self._settle(No(refusal=Unavailable(problem=f"{problem}; try again")))
            return
        self._follow(run)

    def _follow(self, run: Run) -> None:
        reach = Reach(self._engine, self._ask.workspace)
        asked = False

        def heard() -> None:
            nonlocal asked
            asked = True
            if self._part is not None:
                self._part.cancel()

        def told(outcome: Outcome | None) -> None:
            if outcome is not None:
                known = reading.outcome(self._again(run), self._ask.plan.keep)
                self._settle(known or outcome)
            else:
                self._settle(self._running(run, asks=asked))

        self._part = reach.waiting(run, self._ground, told, self._ask.patience, asked=heard)
        if self._ask.until and run.state is None:
            self._begin_watch(run.number)
        self._part.begin()

    def _again(self, run: Run) -> Run:
        try:
            return reading.find(run.number, self._ask.workspace)
        except (NoSuchRun, OSError):
            return run

    def _running(self, run: Run, *, asks: bool) -> Running:
        shell = run.begun.shell
        return Running(
            run=run.name,
            pid=shell.pid if shell else 0,
            seconds=run.seconds,
            output=run.capture(self._ask.plan.keep),
            asks=asks,
            fired=self._evidence,
        )

    def _stop(self, then: Call) -> None:
        if self._timer is not None:
            self._timer.cancel()
        watch, self._watch = self._watch, None
        if watch is None:
            then()
        else:
            self._stopping = watch
            watch.stop(then)

    def _settle(self, answer: Reached) -> None:
        if not self._over:
            self._over = True
            self._stop(lambda: self._answer(answer))
