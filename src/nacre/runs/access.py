"""Reaching a run by its name, whoever runs it: the warden, another one before it, a host, nobody.

The store says who its owner is. A warden is asked; a host cannot be, so its runs are watched and
signalled by what identifies them; of one whose owner is dead there is only what it has left behind.
Everything here is waited for like a command: by a thread, or in an event loop.
"""

import signal as signals
from collections.abc import Callable
from typing import Final

from nacre.engine.engine import Engine
from nacre.engine.loop_context import LoopContext
from nacre.engine.supervisor import Operation
from nacre.engine.ticket import Ticket
from nacre.eventloop import Callback, Timer, now
from nacre.model import requests
from nacre.model.cancel import CancelToken
from nacre.model.outcome import Lost, Outcome, ending_state
from nacre.model.plan import KIB, MIB, Keep
from nacre.model.refusals import Refused, Unavailable, UnknownRun
from nacre.model.requests import Done, Rejected, Response, Running
from nacre.process.process_tree import TaggedProcesses
from nacre.process.run_tag import Tag
from nacre.process.run_tag import parse_tag as read_tag
from nacre.store import run_owner, stored_run
from nacre.store.stored_run import NoSuchRun, StoredRun
from nacre.warden import endpoint
from nacre.warden.client_connection import WardenConnection
from nacre.warden.client_request import WardenRequest

KEEP: Final = Keep(whole=MIB, head=256 * KIB, tail=768 * KIB)
GRACE: Final = 5.0
# How soon we look again at what nobody tells us of.
_POLL_INTERVAL: Final = 0.05
_KILL_WAIT: Final = 2.0
# How long it takes to see that a run waits for input.
_INPUT_WAIT_TIME: Final = 0.4


class RunAccess:
    """The runs of one workspace."""

    def __init__(self, engine: Engine, workspace: bytes) -> None:
        self._engine = engine
        self.workspace = workspace

    def find(self, name: str) -> StoredRun:
        """Raises NoSuchRun, OSError."""
        return stored_run.find_run(stored_run.parse_run_id(name), self.workspace)

    def wait(
        self, name: str, wait_limit: float | None, cancel: CancelToken | None = None
    ) -> Ticket[Outcome | None]:
        """How it ended; None when it has not ended within `wait_limit` seconds. Raises NoSuchRun,
        OSError."""
        run = self.find(name)
        return self._engine.start_operation(
            lambda context, answer: self.wait_operation(run, context, answer, wait_limit), cancel
        )

    def end(self, name: str, number: int, grace: float) -> Ticket[Outcome | None]:
        """This signal, the grace, KILL, to all of it; then how it ended. None when something
        could not be killed. Raises NoSuchRun, OSError."""
        run = self.find(name)
        return self._engine.start_operation(
            lambda context, answer: self.end_operation(run, context, answer, number, grace)
        )

    def wait_operation(
        self,
        run: StoredRun,
        context: LoopContext,
        answer: "OnEnd",
        wait_limit: float | None = None,
        *,
        on_input_wait: Callback | None = None,
    ) -> Operation:
        """To be started on this loop. `on_input_wait` is called, once, when it waits for input."""
        return _WaitForEnd(run, self.workspace, wait_limit, context, answer, on_input_wait)

    def peek_operation(
        self, run: StoredRun, context: LoopContext, answer: Callable[[Response], None]
    ) -> Operation:
        """How it stands at this moment; to be started on this loop."""
        request = requests.Wait(run=run.name, workspace=self.workspace, wait_limit=0.0, input=True)
        return self._request_operation(run, context, answer, request)

    def write_operation(
        self,
        run: StoredRun,
        context: LoopContext,
        answer: Callable[[Response], None],
        data: bytes,
        *,
        eof: bool,
    ) -> Operation:
        """To be started on this loop."""
        request = requests.Write(run=run.name, workspace=self.workspace, data=data, eof=eof)
        return self._request_operation(run, context, answer, request)

    def signal_operation(
        self, run: StoredRun, context: LoopContext, answer: Callable[[Response], None], number: int
    ) -> Operation:
        """To be started on this loop."""
        request = requests.Signal(run=run.name, workspace=self.workspace, signal=number)
        if _in_live_warden(run):
            return self._request_operation(run, context, answer, request)
        remains = _tagged_processes(run)
        if remains is not None and remains.signal(number):
            return Immediate(Done(), answer)
        return Immediate(_reject(run), answer)

    def _request_operation(
        self,
        run: StoredRun,
        context: LoopContext,
        answer: Callable[[Response], None],
        request: requests.Request,
    ) -> Operation:
        if not _in_live_warden(run):
            return Immediate(_reject(run), answer)
        return WardenRequest(
            request, context, answer, connection=_connection_to_owner(run, context)
        )

    def end_operation(
        self,
        run: StoredRun,
        context: LoopContext,
        answer: "OnEnd",
        number: int = signals.SIGTERM,
        grace: float = GRACE,
    ) -> Operation:
        """To be started on this loop."""
        return _EndRun(run, self.workspace, number, grace, context, answer)

    def signal(self, name: str, number: int) -> Ticket[Response]:
        """To everything that it has started. Raises NoSuchRun, OSError."""
        run = self.find(name)
        return self._engine.start_operation(
            lambda context, answer: self.signal_operation(run, context, answer, number)
        )

    def write(
        self, name: str, data: bytes, *, eof: bool, wait_for_room: bool = False
    ) -> Ticket[Response]:
        """`wait_for_room`: wait while the program does not read. Raises NoSuchRun, OSError."""
        run = self.find(name)
        request = requests.Write(
            run=run.name, workspace=self.workspace, data=data, eof=eof, wait_for_room=wait_for_room
        )
        return self._engine.start_operation(
            lambda context, answer: self._request_operation(run, context, answer, request)
        )


def _explain_unreachable(run: StoredRun) -> str:
    """Why nothing can be said to it."""
    if run.ending is not None:
        return f"{run.name} has ended ({ending_state(run.ending)})"
    if run.owner is not None and run.owner.kind == "host":
        return (
            f"{run.name} runs in another program (process {run.owner.pid}), and only that could "
            "write to it"
        )
    return f"{run.name} runs on, but the warden that ran it was killed; it can only be ended"


def raise_if_rejected(answer: Response) -> None:
    """Raises Refused for what was not done."""
    if isinstance(answer, Rejected):
        raise Refused(answer.refusal)


def _in_live_warden(run: StoredRun) -> bool:
    """Whether it runs in a warden that can be asked."""
    owned = run.owner
    return run.end_entry is None and owned is not None and owned.kind == "warden" and owned.is_alive


def _connection_to_owner(run: StoredRun, context: LoopContext) -> WardenConnection | None:
    """To the very warden that has it, which may have given its place to a newer one; None: the
    usual one."""
    assert run.owner is not None
    if run_owner.parse_owner(endpoint.read_owner() or "") == run.owner:
        return None
    return WardenConnection(context.loop, endpoint.socket_name(run.owner.pid))


def _has_new_warden(run: StoredRun) -> bool:
    """Whether another warden than the one that had it is there to see how it ends."""
    current, owned = run_owner.parse_owner(endpoint.read_owner() or ""), run.owner
    watched = (
        run.start_entry.shell is not None
        and owned is not None
        and owned.boot == run_owner.boot_id()
    )
    return watched and current is not None and current != owned and current.is_alive


def tag_of(run: StoredRun) -> Tag | None:
    """By which all that it has started is known; None: that was before the machine was started."""
    owned = run.owner
    return (
        None
        if owned is None or owned.boot != run_owner.boot_id()
        else read_tag(run.start_entry.tag)
    )


def _tagged_processes(run: StoredRun) -> TaggedProcesses | None:
    """What can still be found of it; None: nothing, ever."""
    tag = tag_of(run)
    return None if tag is None else TaggedProcesses(tag)


def _reject(run: StoredRun) -> Rejected:
    return Rejected(refusal=Unavailable(problem=_explain_unreachable(run)))


class Immediate:
    """An answer that is there already."""

    def __init__(self, known: Response, answer: Callable[[Response], None]) -> None:
        self.name = ""
        self._response = known
        self._answer = answer

    def start(self) -> None:
        self._answer(self._response)

    def cancel(self, number: int = signals.SIGTERM) -> None:
        """It is over."""

    def signal(self, number: int) -> None:
        """It is over."""

    def resume(self) -> None:
        """It is done."""

    def detach_now(self) -> None:
        """It is there."""


OnEnd = Callable[[Outcome | None], None]


class _RunWatch:
    """What waiting and ending have in common. Its owner is asked, if it can be; but whether it
    answers or not, our own clock counts, and what the store says."""

    def __init__(
        self, run: StoredRun, workspace: bytes, context: LoopContext, answer: OnEnd
    ) -> None:
        self._request: WardenRequest | None = None
        self._done = False
        self._recovery_deadline = 0.0
        self.name = run.name
        self._run = run
        self._workspace = workspace
        self._context = context
        self._answer = answer
        self._timers: list[Timer] = []

    def signal(self, number: int) -> None:
        """What is sent to whoever waits is not for the run."""

    def resume(self) -> None:
        if self._request is not None:
            self._request.resume()

    def cancel(self, number: int = signals.SIGTERM) -> None:
        """Wait no longer; the run goes on."""
        del number
        self._settle(None)

    def _send(self, request: requests.Request) -> None:
        line = _connection_to_owner(self._run, self._context)
        self._request = WardenRequest(request, self._context, self._on_response, connection=line)
        self._request.start()

    def _on_response(self, answer: Response) -> None:
        raise NotImplementedError

    def _read_stored(self) -> Outcome | None:
        """What the store says; None: it has no end yet."""
        try:
            self._run = stored_run.find_run(self._run.number, self._workspace)
        except (NoSuchRun, OSError):
            return _lost_outcome(self._run)  # swept, or removed
        known = stored_run.build_outcome(self._run, KEEP)
        if known is None or self._run.end_entry is not None or not _has_new_warden(self._run):
            return known
        # Nobody has written down how it ended; but a new warden may be about to.
        self._recovery_deadline = self._recovery_deadline or now() + _KILL_WAIT
        return known if now() >= self._recovery_deadline else None

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers.append(self._context.loop.call_later(seconds, call))

    def _settle(self, outcome: Outcome | None) -> None:
        if self._done:
            return
        self._done = True
        for timer in self._timers:
            timer.cancel()
        request, self._request = self._request, None
        if request is not None:
            request.give_up()
        self._answer(outcome)


def _lost_outcome(run: StoredRun) -> Outcome:
    return Outcome(
        run=run.name,
        ending=Lost(last_seen=run.seconds),
        output=run.capture(KEEP),
        seconds=run.seconds,
    )


class _WaitForEnd(_RunWatch):
    def __init__(
        self,
        run: StoredRun,
        workspace: bytes,
        wait_limit: float | None,
        context: LoopContext,
        answer: OnEnd,
        on_input_wait: Callback | None,
    ) -> None:
        super().__init__(run, workspace, context, answer)
        self._wait_limit = wait_limit
        self._on_input_wait = on_input_wait

    def start(self) -> None:
        if self._wait_limit is not None and self._run.ending is None:
            # A question takes a look, also of one who does not wait for it.
            spare = (
                _INPUT_WAIT_TIME
                if self._on_input_wait is not None and self._run.start_entry.open_stdin
                else 0.0
            )
            self._after(max(self._wait_limit, spare), lambda: self._settle(None))
        if _in_live_warden(self._run):
            self._request_end(for_input=self._on_input_wait is not None)
        else:
            self._poll()

    def _request_end(self, *, for_input: bool) -> None:
        self._send(requests.Wait(run=self.name, workspace=self._workspace, input=for_input))

    def _on_response(self, answer: Response) -> None:
        self._request = None
        if self._done:
            return
        known = self._read_stored()
        if known is not None:
            self._settle(known)
        elif isinstance(answer, Running):
            if self._on_input_wait is not None:
                self._on_input_wait()
            if not self._done:
                self._request_end(for_input=False)
        elif isinstance(answer, Outcome):
            self._settle(answer)  # it could not be written down
        elif isinstance(answer, Rejected) and isinstance(answer.refusal, UnknownRun):
            self._settle(_lost_outcome(self._run))  # its owner lives, and does not know it
        else:
            self._poll()

    def _poll(self) -> None:
        """Nobody tells us of it: look again and again."""
        if self._done:
            return
        known = self._read_stored()
        if known is not None:
            self._settle(known)
        else:
            self._after(_POLL_INTERVAL, self._poll)


class _EndRun(_RunWatch):
    """Its owner ends it; or, when that is no warden, or says nothing, we do, by what identifies
    all that it has started."""

    def __init__(
        self,
        run: StoredRun,
        workspace: bytes,
        number: int,
        grace: float,
        context: LoopContext,
        answer: OnEnd,
    ) -> None:
        super().__init__(run, workspace, context, answer)
        self._reported: Outcome | None = None
        self._kill_at = self._give_up_at = 0.0
        self._signal = number
        self._grace = grace
        self._processes = _tagged_processes(run)

    def start(self) -> None:
        if _in_live_warden(self._run):
            request = requests.End(
                run=self.name, workspace=self._workspace, signal=self._signal, grace=self._grace
            )
            self._after(self._grace + _KILL_WAIT, self._signal_remaining)
            self._send(request)
        else:
            self._signal_remaining()

    def _on_response(self, answer: Response) -> None:
        """It has ended; what it has left behind goes, too."""
        self._request = None
        if isinstance(answer, Outcome):
            self._reported = answer
        self._signal_remaining()

    def _signal_remaining(self) -> None:
        if self._done or self._give_up_at:
            return
        self._kill_at = now() + self._grace
        self._give_up_at = self._kill_at + _KILL_WAIT
        if self._processes is not None:
            self._processes.signal(self._signal)
        self._poll()

    def _poll(self) -> None:
        if self._done:
            return
        left = self._processes.members() if self._processes is not None else []
        known = self._read_stored() or self._reported
        if not left and known is not None:
            self._settle(known)
            return
        if now() >= self._give_up_at:
            # Either something cannot be killed, or nobody says how it ended.
            self._settle(None if left else _lost_outcome(self._run))
            return
        if left and now() >= self._kill_at and self._processes is not None:
            self._processes.signal(signals.SIGKILL)
        self._after(_POLL_INTERVAL, self._poll)
