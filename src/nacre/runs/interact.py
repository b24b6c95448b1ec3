"""The request `Interact` of the tool `job`: act on runs, wait for the first event, report.

The tool `job` of the contracts `pi` and `nacre` first acts on runs, then waits for the first event,
and then reports the runs.

    runs    -> act            write to stdin, send a signal, or end; all runs at the same time
            -> first event    a run has ended, waits for input, or meets a condition; or timeout;
                              with `all`, an event of every run
            -> report         the status of every run, with the output that is new to the caller

Each step of an `Interact` request is a coroutine; see `runs/sequence`. The operations on one run
are in `runs/access`.
"""

import os
from collections.abc import Callable
from typing import Final, assert_never

import msgspec

from nacre.engine.loop_context import LoopContext
from nacre.eventloop import now
from nacre.model.outcome import Capture, Survivor
from nacre.model.refusals import NotWaited, Refused, Unavailable
from nacre.model.requests import (
    Action,
    AlreadyEnded,
    EndRun,
    Event,
    Excerpt,
    Interact,
    JobRequest,
    Jobs,
    Listing,
    ListRuns,
    ManageSessions,
    ReadOutput,
    Rejected,
    RunStatus,
    SendSignal,
    WaitsForInput,
    WriteInput,
)
from nacre.model.wait_conditions import ConditionMet
from nacre.prepare.until_files import resolve_files
from nacre.runs.access import RunControl, find_run, raise_if_rejected
from nacre.runs.conditions import wait_after_end, wait_until_met
from nacre.runs.inspect import (
    build_status,
    find_leftovers,
    find_or_refuse,
    list_runs,
    open_output,
    read_from,
    read_output,
    with_activity,
)
from nacre.runs.manage_sessions import manage_sessions
from nacre.runs.sequence import SequenceOperation, Steps, WaitCancelled, after, all_of, first_of
from nacre.store import listing
from nacre.store.stored_run import NoSuchRun, StoredRun

# Seconds that an `Interact` request waits beyond its wait limit, so that the process that hosts the
# run can still respond.
_EXTRA_WAIT: Final = 0.5
_MAX_JOBS: Final = 50  # maximum number of background jobs in one report
_NO_RESPONSE: Final = Unavailable(
    problem="no response from the run's warden in time (is it stopped?); the request may still be "
    "carried out later"
)


def build_job_operation(
    request: JobRequest,
    workspace: bytes,
    context: LoopContext,
    answer: Callable[[Listing | Rejected], None],
) -> SequenceOperation[Listing | Rejected]:
    steps = _answer_job(request, RunControl(context, workspace))
    cancelled: Listing | Rejected = Rejected(refusal=NotWaited())
    if isinstance(request, Interact) and request.report_when_cancelled:
        cancelled = Listing(runs=())  # the answer of a request that is cancelled before its start
    return SequenceOperation(steps, context.loop, answer, cancelled=cancelled)


async def _answer_job(request: JobRequest, control: RunControl) -> Listing | Rejected:
    try:
        match request:
            case ListRuns():
                return await list_runs(request, control)
            case ReadOutput():
                return await read_output(request, control)
            case Interact():
                return await Interaction(request, control).steps()
            case ManageSessions():
                return manage_sessions(request, control.workspace)
            case _:
                assert_never(request)
    except Refused as refused:
        return Rejected(refusal=refused.refusal)


class Interaction:
    """One `Interact` request and the results of its steps so far."""

    def __init__(self, request: Interact, control: RunControl) -> None:
        self._request = request
        self._control = control
        self._since: dict[str, int] = {}  # maps a run id to the first output byte to report
        # maps a run id to the byte from which on a pattern of `until` is searched
        self._match_since: dict[str, int] = {}
        # maps a run id to the leftover processes of the run, as found right before the `Interact`
        # request acts on the run
        self._left: dict[str, tuple[Survivor, ...]] = {}
        self._events: dict[str, Event] = {}
        self._ended: list[str] = []
        self._unknown: list[str] = []

    async def steps(self) -> Listing:
        """Raises Refused."""
        runs, targets = self._find_runs()
        for run in runs:
            size = 0 if self._request.action is None else run.size() or 0
            self._since[run.name] = self._first_byte(run, size)
            given = self._request.since
            self._match_since[run.name] = size if given is None else given
        try:
            if self._request.action is not None:
                self._left = find_leftovers(targets)
                await self._act(targets)
            await self._wait(self._reload(runs))
            if self._request.until.end_run:
                self._left = find_leftovers(self._reload(runs))
                await self._end_runs(self._reload(runs))
        except WaitCancelled:
            if not self._request.report_when_cancelled:
                raise
        return self._report(self._reload(runs))

    # Methods that find the runs to which an `Interact` request applies.

    def _find_runs(self) -> tuple[list[StoredRun], list[StoredRun]]:
        """Return the runs that the `Interact` request reports, and the runs on which it acts."""
        request = self._request
        if isinstance(request.runs, Jobs):
            jobs = self._list_jobs()
            runs = [run for run in jobs if not request.runs.only_live or run.ending is None]
        else:
            runs = self._find_all(request.runs)
        return runs, runs if request.act_on is None else self._find_all(request.act_on)

    def _list_jobs(self) -> list[StoredRun]:
        try:
            return listing.list_jobs(self._control.workspace, _MAX_JOBS)
        except OSError:
            return []

    def _find_all(self, names: tuple[str, ...]) -> list[StoredRun]:
        found = (self._find(name) for name in dict.fromkeys(names))
        return [run for run in found if run is not None]

    def _find(self, name: str) -> StoredRun | None:
        if not self._request.skip_unknown:
            return find_or_refuse(name, self._control)
        try:
            return find_run(name, self._control.workspace)
        except (NoSuchRun, OSError):
            if name not in self._unknown:
                self._unknown.append(name)
            return None

    def _reload(self, runs: list[StoredRun]) -> list[StoredRun]:
        return self._find_all(tuple(run.name for run in runs))

    def _first_byte(self, run: StoredRun, size: int) -> int:
        """Return the offset of the first byte of the run's output that the `Interact` request
        reports. `size` is the size of the output before the action, or 0 without an action."""
        request = self._request
        if request.since is not None:
            return request.since
        if request.read_position is None:
            return size
        known = request.read_position(run.name)
        if known is None:
            return size if isinstance(request.action, SendSignal | EndRun) else 0
        return known.byte

    # Acting.

    async def _act(self, runs: list[StoredRun]) -> None:
        """Carry out the action of the `Interact` request, such as a write to stdin, on all `runs`
        at the same time; raise Refused for the first run that rejects the action."""
        limit = self._request.action_limit
        if limit is not None and isinstance(self._request.action, EndRun):
            limit += self._request.action.grace
        acted: list[None] | None = await first_of(all_of(*map(self._act_on, runs)), after(limit))
        if acted is None:
            raise Refused(_NO_RESPONSE)

    async def _act_on(self, run: StoredRun) -> None:
        control, action = self._control, self._request.action
        if isinstance(action, WriteInput):
            raise_if_rejected(await control.write(run, action.data, eof=action.eof))
        elif run.ending is not None and not self._left[run.name]:
            self._events[run.name] = AlreadyEnded()
            if not _is_cancel(action) and run.end_entry and run.end_entry.left_running:
                # the run has ended, and the processes that it left running have exited, too
                self._ended.append(run.name)
        elif isinstance(action, SendSignal):
            raise_if_rejected(await control.signal(run, action.signal))
        elif isinstance(action, EndRun):
            if run.ending is not None and action.cancel:
                # The run has already ended, so its ending stays; nacre only ends the processes
                # that the run left running.
                self._events[run.name] = AlreadyEnded()
            else:
                self._ended.append(run.name)
            await control.end(run, action.signal, action.grace, cancel=action.cancel)

    # Waiting.

    async def _wait(self, runs: list[StoredRun]) -> None:
        """Wait until one of the runs ends, waits for input, or meets a condition of the `Interact`
        request."""
        request = self._request
        may_wait_for_input = request.input_is_event and any(
            run.start_entry.open_stdin for run in runs
        )
        over = [run for run in runs if run.ending is not None and not request.until]
        # The end of a run that an earlier reply has reported does not end a wait for other runs;
        # otherwise a caller that waits for the same runs in a loop would spin.
        news = over if len(over) == len(runs) else [run for run in over if self._is_new(run)]
        if not runs or (news and not request.all):
            return
        if not request.wait_limit and not may_wait_for_input and not request.until:
            return
        waiting = [run for run in runs if run not in over]
        if request.all:
            found: Steps[object] = all_of(*map(self._wait_for_run, waiting))
        else:
            found = self._wait_for_first(waiting)
        await first_of(found, after(request.wait_limit + _EXTRA_WAIT))

    async def _wait_for_first(self, runs: list[StoredRun]) -> None:
        """Wait for the first of the runs with an event, or with an end that no earlier reply has
        reported; or until no run can have an event any more."""
        rest = len(runs)

        async def wait(run: StoredRun) -> None:
            nonlocal rest
            await self._wait_for_run(run)
            rest -= 1
            if rest and run.name not in self._events and not self._is_new(run):
                await after(None)

        await first_of(*map(wait, runs))

    def _is_new(self, run: StoredRun) -> bool:
        """Return whether replies to the caller have not yet reported the end of an ended run, or
        the end of its output."""
        read = self._request.read_position
        seen = None if read is None else read(run.name)
        return seen is None or not seen.ended or seen.byte < (run.size() or 0)

    async def _wait_for_run(self, run: StoredRun) -> None:
        """Wait until the run has ended, waits for input, or meets the conditions. The conditions
        are watched as long as a process of the run lives."""
        until, began = self._request.until, now()
        event: Event | None = None
        if run.ending is None:
            events: list[Steps[Event | None]] = [self._wait_for_end(run)]
            if until:
                events.append(self._wait_for_condition(run))
            event = await first_of(*events)
        if until and event is None and self._reload([run])[0].ending is not None:
            event = await wait_after_end(
                resolve_files(until, os.fsencode(run.start_entry.cwd)),
                run.number,
                self._control.workspace,
                self._control.context,
                since=self._match_since[run.name],
                wait_limit=max(0.0, self._request.wait_limit - (now() - began)),
            )
        if event is not None:
            self._events[run.name] = event

    async def _wait_for_end(self, run: StoredRun) -> WaitsForInput | None:
        ended = await self._control.wait_for_end(
            run, self._request.wait_limit, or_input=self._request.input_is_event
        )
        return ended if isinstance(ended, WaitsForInput) else None

    async def _wait_for_condition(self, run: StoredRun) -> ConditionMet:
        return await wait_until_met(
            resolve_files(self._request.until, os.fsencode(run.start_entry.cwd)),
            run.number,
            self._control.workspace,
            self._control.context,
            since=self._match_since[run.name],
        )

    async def _end_runs(self, runs: list[StoredRun]) -> None:
        """End the runs that meet the conditions of the request."""
        met = [run for run in runs if isinstance(self._events.get(run.name), ConditionMet)]
        await all_of(*map(self._control.end, met))
        self._ended += [run.name for run in met]

    # Reporting.

    def _report(self, runs: list[StoredRun]) -> Listing:
        return Listing(
            runs=tuple(map(self._build_status, runs)),
            ended=tuple(self._ended),
            already_ended=tuple(
                name
                for name, event in self._events.items()
                if isinstance(event, AlreadyEnded) and name not in self._ended
            ),
            unknown=tuple(self._unknown),
        )

    def _build_status(self, run: StoredRun) -> RunStatus:
        status = with_activity(build_status(run, self._read(run)), run)
        event = self._events.get(run.name)
        if isinstance(event, WaitsForInput) and run.ending is not None:
            event = None
        alive = {each.pid for each in status.processes.left_running}
        gone = tuple(each for each in self._left.get(run.name, ()) if each.pid not in alive)
        shown = msgspec.structs.replace(status.processes, terminated=gone)
        return msgspec.structs.replace(status, event=event, processes=shown)

    def _read(self, run: StoredRun) -> Excerpt:
        since, keep = self._since[run.name], self._request.keep
        try:
            if not since:
                return Excerpt(capture=run.capture(keep))
            with open_output(run) as source:
                return read_from(run, source, since, keep)
        except (NoSuchRun, OSError):
            return Excerpt(capture=Capture())


def _is_cancel(action: Action | None) -> bool:
    return isinstance(action, EndRun) and action.cancel
