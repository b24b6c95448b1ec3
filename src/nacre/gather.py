"""Several runs at once: some to be ended, the first of the others to be waited for."""

from collections.abc import Callable
from typing import Final

from nacre import asks
from nacre.asks import Listing
from nacre.engine.engine import Engine
from nacre.engine.ground import Ground
from nacre.engine.supervise import Supervised
from nacre.look import job_of
from nacre.loop import Timer
from nacre.outcome import Outcome
from nacre.plan import Keep
from nacre.reach import Reach
from nacre.store import listing
from nacre.store.reading import NoSuchRun, Run

_LISTED: Final = 50  # jobs at most


class Gathering:
    """Waited for like a command."""

    name = ""
    _over = False
    _deadline: Timer | None = None

    def __init__(
        self,
        ask: asks.Jobs,
        workspace: bytes,
        engine: Engine,
        ground: Ground,
        answer: Callable[[Listing], None],
    ) -> None:
        self._ask = ask
        self._workspace = workspace
        self._ground = ground
        self._answer = answer
        self._reach = Reach(engine, workspace)
        self._parts: list[Supervised] = []
        self._runs: list[Run] = []
        self._ended: list[str] = []
        self._past: list[str] = []
        self._unknown: list[str] = []
        self._ending = 0

    def begin(self) -> None:
        if self._ask.runs is None:
            jobs = self._jobs()
            self._runs = [run for run in jobs if not self._ask.live or run.state is None]
        else:
            found = [self._found(name) for name in self._ask.runs]
            self._runs = [run for run in found if run is not None]
        endings = [run for name in self._ask.end if (run := self._to_end(name)) is not None]
        self._ending = len(endings)
        for run in endings:
            grace = self._ask.grace
            self._begin(self._reach.ending(run, self._ground, self._one_ended, grace=grace))
        if not endings:
            self._wait()

    def cancel(self, number: int = 15) -> None:
        del number
        self._settle()

    def signal(self, number: int) -> None:
        """What is sent to whoever waits is not for the runs."""

    def work(self) -> None:
        for part in list(self._parts):
            part.work()

    def _begin(self, part: Supervised) -> None:
        if not self._over:
            self._parts.append(part)
            part.begin()

    def _to_end(self, name: str) -> Run | None:
        run = self._found(name)
        if run is None:
            return None
        if run.state is not None and not (run.ended and run.ended.left_running):
            self._past.append(run.name)
            return None
        self._ended.append(run.name)
        return run

    def _one_ended(self, outcome: Outcome | None) -> None:
        del outcome
        self._ending -= 1
        if not self._ending:
            self._wait()

    def _wait(self) -> None:
        if self._over:
            return
        runs = self._chosen()
        live = [run for run in runs if run.state is None]
        if self._ask.patience == 0 or not live or len(live) < len(runs):
            self._settle()
            return
        if self._ask.patience is not None:
            self._deadline = self._ground.loop.after(self._ask.patience, self._settle)
        for run in live:
            self._begin(self._reach.waiting(run, self._ground, lambda _: self._settle()))

    def _chosen(self) -> list[Run]:
        """As they are now."""
        found = (self._found(run.name) for run in self._runs)
        return [run for run in found if run is not None]

    def _jobs(self) -> list[Run]:
        try:
            return listing.jobs(self._workspace, _LISTED)
        except OSError:
            return []

    def _found(self, name: str) -> Run | None:
        try:
            return self._reach.find(name)
        except (NoSuchRun, OSError):
            if name not in self._unknown:
                self._unknown.append(name)
            return None

    def _settle(self) -> None:
        if self._over:
            return
        self._over = True
        if self._deadline is not None:
            self._deadline.cancel()
        for part in self._parts:
            part.cancel()
        keep = Keep(whole=self._ask.most, head=0, tail=self._ask.most)
        jobs = tuple(
            job_of(run, run.capture(keep), run.ended.left_running if run.ended else ())
            for run in self._chosen()
        )
        self._answer(
            Listing(
                jobs=jobs,
                ended=tuple(self._ended),
                over=tuple(self._past),
                unknown=tuple(self._unknown),
            )
        )
