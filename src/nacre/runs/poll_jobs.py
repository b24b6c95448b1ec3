"""Several runs at once: some to be ended, the first of the others to be waited for."""

from collections.abc import Callable
from typing import Final

from nacre.engine.engine import Engine
from nacre.engine.loop_context import LoopContext
from nacre.engine.supervisor import Operation
from nacre.eventloop import Timer
from nacre.model import requests
from nacre.model.outcome import Outcome
from nacre.model.plan import Keep
from nacre.model.requests import Listing
from nacre.runs.access import RunAccess
from nacre.runs.inspect import build_status
from nacre.store import listing
from nacre.store.stored_run import NoSuchRun, StoredRun

_MAX_LISTED: Final = 50  # jobs at most


class PollJobsOperation:
    """Waited for like a command."""

    name = ""

    def __init__(
        self,
        request: requests.PollJobs,
        workspace: bytes,
        engine: Engine,
        context: LoopContext,
        answer: Callable[[Listing], None],
    ) -> None:
        self._done = False
        self._deadline: Timer | None = None
        self._request = request
        self._workspace = workspace
        self._context = context
        self._answer = answer
        self._reach = RunAccess(engine, workspace)
        self._operations: list[Operation] = []
        self._runs: list[StoredRun] = []
        self._terminated: list[str] = []
        self._already_ended: list[str] = []
        self._unknown: list[str] = []
        self._ending = 0

    def start(self) -> None:
        if self._request.runs is None:
            jobs = self._list_jobs()
            self._runs = [run for run in jobs if not self._request.only_live or run.ending is None]
        else:
            found = [self._find(name) for name in self._request.runs]
            self._runs = [run for run in found if run is not None]
        endings = [
            run for name in self._request.end if (run := self._select_to_end(name)) is not None
        ]
        self._ending = len(endings)
        for run in endings:
            grace = self._request.grace
            self._begin(
                self._reach.end_operation(run, self._context, self._on_run_end, grace=grace)
            )
        if not endings:
            self._wait()

    def cancel(self, number: int = 15) -> None:
        del number
        self._settle()

    def signal(self, number: int) -> None:
        """What is sent to whoever waits is not for the runs."""

    def resume(self) -> None:
        for part in list(self._operations):
            part.resume()

    def _begin(self, part: Operation) -> None:
        if not self._done:
            self._operations.append(part)
            part.start()

    def _select_to_end(self, name: str) -> StoredRun | None:
        run = self._find(name)
        if run is None:
            return None
        if run.ending is not None and not (run.end_entry and run.end_entry.left_running):
            self._already_ended.append(run.name)
            return None
        self._terminated.append(run.name)
        return run

    def _on_run_end(self, outcome: Outcome | None) -> None:
        del outcome
        self._ending -= 1
        if not self._ending:
            self._wait()

    def _wait(self) -> None:
        if self._done:
            return
        runs = self._reload()
        live = [run for run in runs if run.ending is None]
        if self._request.wait_limit == 0 or not live or len(live) < len(runs):
            self._settle()
            return
        if self._request.wait_limit is not None:
            self._deadline = self._context.loop.call_later(self._request.wait_limit, self._settle)
        for run in live:
            self._begin(self._reach.wait_operation(run, self._context, lambda _: self._settle()))

    def _reload(self) -> list[StoredRun]:
        """As they are now."""
        found = (self._find(run.name) for run in self._runs)
        return [run for run in found if run is not None]

    def _list_jobs(self) -> list[StoredRun]:
        try:
            return listing.list_jobs(self._workspace, _MAX_LISTED)
        except OSError:
            return []

    def _find(self, name: str) -> StoredRun | None:
        try:
            return self._reach.find(name)
        except (NoSuchRun, OSError):
            if name not in self._unknown:
                self._unknown.append(name)
            return None

    def _settle(self) -> None:
        if self._done:
            return
        self._done = True
        if self._deadline is not None:
            self._deadline.cancel()
        for part in self._operations:
            part.cancel()
        keep = Keep(whole=self._request.max_bytes, head=0, tail=self._request.max_bytes)
        jobs = tuple(
            build_status(
                run, run.capture(keep), run.end_entry.left_running if run.end_entry else ()
            )
            for run in self._reload()
        )
        self._answer(
            Listing(
                runs=jobs,
                ended=tuple(self._terminated),
                already_ended=tuple(self._already_ended),
                unknown=tuple(self._unknown),
            )
        )
