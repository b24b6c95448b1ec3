"""Access to a run by its id, from any process.

The store names the owner of a run: a warden (nacre's daemon) or a host process. If the owner of a
run is a live warden, `RunControl` sends its requests to the warden. If the owner of a run is a host
process, which accepts no requests, `RunControl` polls the store for the end of the run, and signals
the processes that have the run's tag. If the owner of a run is dead, `RunControl` can only read the
store and signal the processes that have the run's tag.

`RunControl` has one coroutine for each operation on a run; see `runs/sequence`. `RunAccess` starts
the coroutines of `RunControl` in an engine and returns tickets (handles of started operations). The
functions that read a run's output are in `runs/inspect`.
"""

import signal as signals
from collections.abc import Callable
from typing import Final, TypeVar

from nacre.engine.engine import Engine
from nacre.engine.loop_context import LoopContext
from nacre.engine.ticket import Ticket
from nacre.eventloop import now
from nacre.model import requests
from nacre.model.cancel import CancelToken
from nacre.model.outcome import Killed, Lost, Outcome, ending_state
from nacre.model.plan import KIB, MIB, Keep
from nacre.model.refusals import CalledOff, Refused, Unavailable, UnknownRun
from nacre.model.requests import Done, Rejected, Response, Running, WaitsForInput
from nacre.process.process_tree import TaggedProcesses
from nacre.process.run_tag import Tag
from nacre.process.run_tag import parse_tag as read_tag
from nacre.runs.sequence import Answer, SequenceOperation, Steps, after, first_of
from nacre.store import run_owner, stored_run
from nacre.store.stored_run import NoSuchRun, StoredRun
from nacre.warden import endpoint
from nacre.warden.client_connection import WardenConnection
from nacre.warden.client_request import WardenRequest

Result = TypeVar("Result")

KEEP: Final = Keep(whole=MIB, head=256 * KIB, tail=768 * KIB)
GRACE: Final = 5.0  # default seconds between TERM and KILL when a run is ended
_POLL_INTERVAL: Final = 0.05  # seconds between two polls of the store for a run's end
_KILL_WAIT: Final = 2.0  # maximum seconds to wait until killed processes have disappeared
_INPUT_WAIT_TIME: Final = 0.4  # seconds that the warden needs to detect that a run waits for input


class RunAccess:
    """Operations on the runs of one workspace; a method returns a ticket (the handle of a started
    operation)."""

    def __init__(self, engine: Engine, workspace: bytes) -> None:
        self._engine = engine
        self.workspace = workspace

    def find(self, name: str) -> StoredRun:
        """Return the run with this id. Raises NoSuchRun, OSError."""
        return find_run(name, self.workspace)

    def wait(
        self, name: str, wait_limit: float | None, cancel: CancelToken | None = None
    ) -> Ticket[Outcome | None]:
        """Wait for the outcome of the run; the result is None when the run still runs after
        `wait_limit` seconds. Raises NoSuchRun, OSError."""
        run = self.find(name)

        async def wait_for_end(control: RunControl) -> Outcome | None:
            ended = await control.wait_for_end(run, wait_limit)
            return ended if isinstance(ended, Outcome) else None

        return self._start(wait_for_end, None, cancel)

    def end(self, name: str, number: int, grace: float) -> Ticket[Outcome | None]:
        """End the run: send signal `number` to its process tree, and KILL after `grace` seconds.
        The returned ticket delivers the run's outcome, or None when a process of the run could not
        be killed. Raises NoSuchRun, OSError."""
        run = self.find(name)
        return self._start(lambda control: control.end(run, number, grace), None)

    def signal(self, name: str, number: int) -> Ticket[Response]:
        """Send signal `number` to the run's process tree. Raises NoSuchRun, OSError."""
        run = self.find(name)
        return self._start(lambda control: control.signal(run, number), _CALLED_OFF)

    def write(
        self, name: str, data: bytes, *, eof: bool, wait_for_room: bool = False
    ) -> Ticket[Response]:
        """Write data to the run's stdin; with `wait_for_room`, wait while the stdin pipe is full.
        Raises NoSuchRun, OSError."""
        run = self.find(name)
        return self._start(
            lambda control: control.write(run, data, eof=eof, wait_for_room=wait_for_room),
            _CALLED_OFF,
        )

    def _start(
        self,
        steps: "Callable[[RunControl], Steps[Result]]",
        cancelled: Result,
        cancel: CancelToken | None = None,
    ) -> Ticket[Result]:
        def make(
            context: LoopContext, answer: Callable[[Result], None]
        ) -> SequenceOperation[Result]:
            control = RunControl(context, self.workspace)
            return SequenceOperation(steps(control), context.loop, answer, cancelled=cancelled)

        return self._engine.start_operation(make, cancel)


_CALLED_OFF: Final[Response] = Rejected(refusal=CalledOff())


def find_run(name: str, workspace: bytes) -> StoredRun:
    """Return the run with this id. Raises NoSuchRun, OSError."""
    return stored_run.find_run(stored_run.parse_run_id(name), workspace)


class RunControl:
    """Operations on the runs of one workspace, as coroutines on one event loop."""

    def __init__(self, context: LoopContext, workspace: bytes) -> None:
        self.context = context
        self.workspace = workspace

    async def wait_for_end(
        self, run: StoredRun, wait_limit: float | None = None, *, or_input: bool = False
    ) -> Outcome | WaitsForInput | None:
        """Wait until the run has ended or, with `or_input`, waits for input; return None when
        neither has happened after `wait_limit` seconds."""
        if wait_limit is None or run.ending is not None:
            return await self._watch_end(run, or_input=or_input)
        if or_input and run.start_entry.open_stdin:
            wait_limit = max(wait_limit, _INPUT_WAIT_TIME)
        return await first_of(self._watch_end(run, or_input=or_input), after(wait_limit))

    async def _watch_end(self, run: StoredRun, *, or_input: bool) -> Outcome | WaitsForInput:
        reader = _EndReader(run, self.workspace)
        while _in_live_warden(reader.run):
            wait = requests.Wait(run=run.name, workspace=self.workspace, input=or_input)
            response = await self._ask(run, wait)
            known = reader.read()
            if known is not None:
                return known
            match response:
                case Running() if or_input:
                    return requests.input_wait(response)
                case Running():
                    continue
                case Outcome():  # the warden could not write the run's outcome to the store
                    return response
                case Rejected(refusal=UnknownRun()):  # the live warden does not know the run
                    return _lost_outcome(run)
                case _:
                    break
        while (known := reader.read()) is None:
            await after(_POLL_INTERVAL)
        return known

    async def end(
        self,
        run: StoredRun,
        number: int = signals.SIGTERM,
        grace: float = GRACE,
        *,
        cancel: bool = False,
    ) -> Outcome | None:
        """End the run and its leftover processes; return None when a process could not be killed.
        With `cancel`, the ending of a live run becomes `Cancelled`.

        If a live warden owns the run, `RunControl.end` asks the warden to end the run; in any case,
        `RunControl.end` then signals the processes that still have the run's tag.
        """
        response: Response | None = None
        if _in_live_warden(run):
            end = requests.End(
                run=run.name, workspace=self.workspace, signal=number, grace=grace, cancel=cancel
            )
            response = await first_of(self._ask(run, end), after(grace + _KILL_WAIT))
        reported = response if isinstance(response, Outcome) else None
        if cancel and reported is not None and isinstance(reported.ending, Killed):
            stored_run.mark_cancelled(run)  # an older warden does not know the field `cancel`
        cancels = cancel and reported is None and run.ending is None
        return await self._end_tagged(run, number, grace, reported, cancel=cancels)

    async def _end_tagged(
        self,
        run: StoredRun,
        number: int,
        grace: float,
        reported: Outcome | None,
        *,
        cancel: bool = False,
    ) -> Outcome | None:
        """End the processes that have the run's tag; `reported` is the run's outcome if the warden
        has reported it, else None. With `cancel`, record that the run was cancelled."""
        reader, processes = _EndReader(run, self.workspace), _tagged_processes(run)
        kill_at = now() + grace
        give_up_at = kill_at + _KILL_WAIT
        if processes is not None and processes.signal(number) and cancel:
            stored_run.mark_cancelled(run)
        while True:
            left = processes.members() if processes is not None else []
            known = reader.read() or reported
            if not left and known is not None:
                return known
            if now() >= give_up_at:
                # If a process of the run is still alive after the deadline `give_up_at`, return
                # None; if no process is left, no owner has reported how the run ended, so the run
                # is lost.
                return None if left else _lost_outcome(run)
            if left and now() >= kill_at and processes is not None:
                processes.signal(signals.SIGKILL)
            await after(_POLL_INTERVAL)

    async def write(
        self, run: StoredRun, data: bytes, *, eof: bool, wait_for_room: bool = False
    ) -> Response:
        """Write data to the run's stdin."""
        return await self._request(
            run,
            requests.Write(
                run=run.name,
                workspace=self.workspace,
                data=data,
                eof=eof,
                wait_for_room=wait_for_room,
            ),
        )

    async def signal(self, run: StoredRun, number: int) -> Response:
        """Send a signal to the run's process tree."""
        if _in_live_warden(run):
            return await self._ask(
                run, requests.Signal(run=run.name, workspace=self.workspace, signal=number)
            )
        processes = _tagged_processes(run)
        if processes is not None and processes.signal(number):
            return Done()
        return _reject(run)

    async def waits_for_input(self, run: StoredRun) -> bool:
        """Return whether the run waits for input at this moment."""
        peek = requests.Wait(run=run.name, workspace=self.workspace, wait_limit=0.0, input=True)
        response = await self._request(run, peek)
        return isinstance(response, Running) and response.waits_for_input

    async def _request(self, run: StoredRun, request: requests.Request) -> Response:
        return await self._ask(run, request) if _in_live_warden(run) else _reject(run)

    async def _ask(self, run: StoredRun, request: requests.Request) -> Response:
        """Send a request to the warden that owns the run, and wait for the response."""
        answer: Answer[Response] = Answer()
        connection = _connection_to_owner(run, self.context)
        asked = WardenRequest(request, self.context, answer.deliver, connection=connection)
        answer.operation = asked
        try:
            asked.start()
            return await answer
        except GeneratorExit:  # in a fork of the host, the connection belongs to the parent process
            raise
        except BaseException:  # cancelled, or interrupted by Ctrl-C
            asked.give_up()
            raise


class _EndReader:
    """Reader that polls the store for the outcome of one run."""

    def __init__(self, run: StoredRun, workspace: bytes) -> None:
        self.run = run
        self._workspace = workspace
        self._recovery_deadline = 0.0

    def read(self) -> Outcome | None:
        """Return the run's outcome from the store; None while the run has not ended, or while a new
        warden may still store how it ended."""
        try:
            self.run = stored_run.find_run(self.run.number, self._workspace)
        except (NoSuchRun, OSError):
            return _lost_outcome(self.run)  # the stored run was cleaned up or removed
        known = stored_run.build_outcome(self.run, KEEP)
        if known is None or self.run.end_entry is not None or not _has_new_warden(self.run):
            return known
        # The store does not say how the run ended, but a new warden may be about to record it, so
        # `read` returns None until `_recovery_deadline`.
        self._recovery_deadline = self._recovery_deadline or now() + _KILL_WAIT
        return known if now() >= self._recovery_deadline else None


def _lost_outcome(run: StoredRun) -> Outcome:
    return Outcome(
        run=run.name,
        ending=Lost(last_seen=run.seconds),
        output=run.capture(KEEP),
        seconds=run.seconds,
    )


def raise_if_rejected(answer: Response) -> None:
    """Raise Refused if the response to a request is a rejection."""
    if isinstance(answer, Rejected):
        raise Refused(answer.refusal)


def _reject(run: StoredRun) -> Rejected:
    return Rejected(refusal=Unavailable(problem=_explain_unreachable(run)))


def _explain_unreachable(run: StoredRun) -> str:
    if run.ending is not None:
        return f"{run.name} has ended ({ending_state(run.ending)})"
    if run.owner is not None and run.owner.kind == "host":
        return (
            f"{run.name} runs in another program (process {run.owner.pid}); only that program can "
            "write to it"
        )
    return f"{run.name} is running, but its warden was killed; it can only be ended"


def _in_live_warden(run: StoredRun) -> bool:
    """Return whether the run's owner is a warden that is alive."""
    owned = run.owner
    return run.end_entry is None and owned is not None and owned.kind == "warden" and owned.is_alive


def _connection_to_owner(run: StoredRun, context: LoopContext) -> WardenConnection | None:
    """Return a new connection to the run's owner if the owner is a warden that a newer warden has
    replaced. Return None if the current warden owns the run: no new connection is needed, because
    requests to the current warden use a shared connection."""
    assert run.owner is not None
    if run_owner.parse_owner(endpoint.read_owner() or "") == run.owner:
        return None
    return WardenConnection(context.loop, endpoint.socket_name(run.owner.pid))


def _has_new_warden(run: StoredRun) -> bool:
    """Return whether a live warden other than the run's owner watches the run."""
    current, owned = run_owner.parse_owner(endpoint.read_owner() or ""), run.owner
    watched = (
        run.start_entry.shell is not None
        and owned is not None
        and owned.boot == run_owner.boot_id()
    )
    return watched and current is not None and current != owned and current.is_alive


def tag_of(run: StoredRun) -> Tag | None:
    """Return the tag of the run's processes; None when the machine was rebooted after the run's
    start."""
    owned = run.owner
    return (
        None
        if owned is None or owned.boot != run_owner.boot_id()
        else read_tag(run.start_entry.tag)
    )


def _tagged_processes(run: StoredRun) -> TaggedProcesses | None:
    tag = tag_of(run)
    return None if tag is None else TaggedProcesses(tag)
