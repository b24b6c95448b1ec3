"""Seeing to runs that were handed back: wait for the first of them, have one read something, send
signals, end some. Everything is waited for like a command."""

import os
from functools import partial
from typing import Final

import msgspec

from nacre.engine.engine import Engine
from nacre.engine.loop_context import LoopContext
from nacre.engine.supervisor import Operation
from nacre.eventloop import Callback, Timer
from nacre.model import requests
from nacre.model.outcome import Capture, Outcome, Survivor
from nacre.model.refusals import Unavailable
from nacre.model.requests import ConditionMet, Listing, Rejected, Response, RunStatus
from nacre.prepare.until_files import resolve_files
from nacre.runs.access import RunAccess
from nacre.runs.conditions import ConditionWatch
from nacre.runs.inspect import (
    KEEP,
    ListOperation,
    OnListing,
    ReadOnlyOperation,
    ReadOperation,
    build_status,
    find_leftovers,
    open_output,
    read_from,
)
from nacre.store.stored_run import NoSuchRun, StoredRun

_EXTRA_WAIT: Final = 0.5  # seconds after its own patience in which a wait comes back by itself
_RESPONSE_TIMEOUT: Final = 5.0  # in which who runs it takes what is written, or a signal
_NO_RESPONSE: Final = Unavailable(
    problem="whoever runs it does not answer (is its warden stopped?); nothing was done, or it is "
    "done later"
)


def build_job_operation(
    request: requests.JobRequest,
    workspace: bytes,
    engine: Engine,
    context: LoopContext,
    answer: OnListing,
) -> Operation:
    reach = RunAccess(engine, workspace)
    match request:
        case requests.ListRuns():
            return ListOperation(request, reach, context, answer)
        case requests.ReadOutput():
            return ReadOperation(request, reach, context, answer)
        case requests.Interact():
            return InteractOperation(request, reach, context, answer)


class InteractOperation(ReadOnlyOperation):
    def __init__(
        self, request: requests.Interact, reach: RunAccess, context: LoopContext, answer: OnListing
    ) -> None:
        super().__init__(reach, context, answer)
        self._timer: Timer | None = None
        self._stopped = False
        self._request = request
        self._operations: list[Operation] = []
        self._watches: list[ConditionWatch] = []
        self._since: dict[str, int] = {}  # of each, only what it has said after that
        self._left: dict[str, tuple[Survivor, ...]] = {}  # what each had left running
        self._already_ended: set[str] = set()  # who had ended, with all that it had started
        self._acting: set[str] = set()  # who is being written to, signalled or ended
        self._waiting_for_input: set[str] = set()
        self._met: dict[str, ConditionMet] = {}

    def start(self) -> None:
        found = [self._find(name) for name in dict.fromkeys(self._request.runs)]
        runs = [run for run in found if run is not None]
        if len(runs) < len(found):
            return  # that was refused
        request = self._request
        acts = request.signal is not None or request.text is not None or request.eof
        for run in runs:
            # Whoever does something wants to see what comes of that.
            size = (run.size() or 0) if acts else 0
            self._since[run.name] = size if request.since is None else request.since
        if not acts:
            self._wait(runs)
            return
        self._left = find_leftovers(runs)
        self._timer = self._context.loop.call_later(
            _RESPONSE_TIMEOUT + (request.grace or 0.0), self._on_timeout
        )
        self._acting = {run.name for run in runs}
        for run in runs:
            self._act(run)

    def resume(self) -> None:
        for part in list(self._operations):
            part.resume()
        for watch in list(self._watches):
            watch.resume()

    def cancel(self, number: int = 15) -> None:
        self._stop(lambda: super(InteractOperation, self).cancel(number))

    # Doing something first.

    def _act(self, run: StoredRun) -> None:
        request, context, done = self._request, self._context, partial(self._on_response, run.name)
        if request.signal is None:
            text = request.text or b""
            self._begin(self._reach.write_operation(run, context, done, text, eof=request.eof))
        elif run.ending is not None and not self._left[run.name]:
            self._already_ended.add(run.name)
            self._finish_act(run.name)
        elif request.grace is None:
            self._begin(self._reach.signal_operation(run, context, done, request.signal))
        else:
            ended = partial(self._on_end, run.name)
            self._begin(
                self._reach.end_operation(run, context, ended, request.signal, request.grace)
            )

    def _on_end(self, name: str, outcome: Outcome | None) -> None:
        del outcome  # the store has it
        self._finish_act(name)

    def _on_response(self, name: str, answer: Response) -> None:
        """It was written, or the signal was sent; or why not."""
        if isinstance(answer, Rejected):
            self._stop(lambda: self._refuse(answer.refusal))
        else:
            self._finish_act(name)

    def _finish_act(self, name: str) -> None:
        self._acting.discard(name)
        if not self._acting and not self._stopped:
            found = [self._find(each) for each in self._since]
            self._wait([run for run in found if run is not None])

    def _on_timeout(self) -> None:
        self._stop(lambda: self._refuse(_NO_RESPONSE))

    # Waiting.

    def _begin(self, part: Operation) -> None:
        if not self._stopped:
            self._operations.append(part)
            part.start()

    def _wait(self, runs: list[StoredRun]) -> None:
        if self._stopped:
            return
        patience = self._request.wait_limit
        may_ask = any(run.ending is None and run.start_entry.open_stdin for run in runs)
        if any(run.ending is not None for run in runs) or (not patience and not may_ask):
            self._finish()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.loop.call_later(patience + _EXTRA_WAIT, self._finish)
        for run in runs:
            on_input_wait = partial(self._on_input_wait, run.name)
            self._begin(
                self._reach.wait_operation(
                    run, self._context, self._on_run_end, patience, on_input_wait=on_input_wait
                )
            )
            if self._request.until and not self._stopped:
                self._watch(run)

    def _watch(self, run: StoredRun) -> None:
        watch = ConditionWatch(
            resolve_files(self._request.until, os.fsencode(run.start_entry.cwd)),
            run.number,
            self._reach.workspace,
            self._context,
            partial(self._on_met, run.name),
            since=self._since[run.name],
        )
        self._watches.append(watch)
        watch.start()

    def _on_run_end(self, outcome: Outcome | None) -> None:
        del outcome  # the store has it
        self._finish()

    def _on_input_wait(self, name: str) -> None:
        self._waiting_for_input.add(name)
        self._finish()

    def _on_met(self, name: str, met: ConditionMet) -> None:
        self._met[name] = met
        self._finish()

    def _stop(self, then: Callback) -> None:
        """Wait for nothing any more; `then` is called when nothing of that is left."""
        if self._stopped:
            return
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for part in self._operations:
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
        self._stop(self._reply)

    def _reply(self) -> None:
        jobs = []
        for name in self._since:
            run = self._find(name)
            if run is None:
                return
            jobs.append(self._build_status(run))
        self._settle(Listing(runs=tuple(jobs)))

    def _build_status(self, run: StoredRun) -> RunStatus:
        since = self._since[run.name]
        try:
            if since:
                with open_output(run) as source:
                    job = read_from(run, source, since)
            else:
                job = build_status(run, run.capture(KEEP))
        except (NoSuchRun, OSError):
            job = build_status(run, Capture())
        gone = self._left.get(run.name, ())
        return msgspec.structs.replace(
            job,
            waits_for_input=run.name in self._waiting_for_input and run.ending is None,
            met=self._met.get(run.name),
            already_ended=run.name in self._already_ended,
            terminated=tuple(each for each in gone if each.pid not in _pids(job.left_running)),
        )


def _pids(survivors: tuple[Survivor, ...]) -> set[int]:
    return {each.pid for each in survivors}
