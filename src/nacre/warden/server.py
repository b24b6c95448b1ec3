"""The warden: one small process that runs things for many clients, and goes when it is idle.

It hosts the same engine as any other process of ours, on one loop and one thread: sockets, pipes
and clocks. A client that is gone leaves its runs behind; a cancel ends one. Nothing that a client
sends can hurt the others: frames that make no sense end its connection, what it does not read is
bounded.
"""

import os
import time
from contextlib import suppress
from typing import Final

from nacre.engine.engine import run_to_end
from nacre.engine.leftover_pipes import LeftoverPipes, watch
from nacre.engine.loop_context import LazySessions, LoopContext
from nacre.engine.queue import RunQueue
from nacre.eventloop import Timer
from nacre.model import requests
from nacre.model.outcome import Capture, NotStarted, Outcome
from nacre.model.refusals import Refused, TooMany, Unavailable, UnknownRun
from nacre.process.own_process import become_subreaper, trim_memory
from nacre.process.pipe_reader import PipeReader
from nacre.store import run_owner, stored_run
from nacre.store.late_output import LateOutput
from nacre.store.run_record import RunFiles, RunRecord
from nacre.store.store import claim_run, release_claim
from nacre.warden import endpoint
from nacre.warden.hosted_run import HostedRun
from nacre.warden.protocol import MAX_KEPT, Adopt, Leaving
from nacre.warden.recovery import Recovery
from nacre.warden.server_connection import PendingRequest, ServerConnection

IDLE_SECONDS: Final = 60.0  # seconds without anything to do
_MAX_LOG: Final = 1024 * 1024
_TRIM_ABOVE: Final = 16 * 1024 * 1024  # bytes of output that leave memory behind
_RETRY_INTERVAL: Final = 0.05
_FIRST_REQUEST_TIME: Final = 10.0  # seconds that whoever has started us may take to ask


class Warden:
    def __init__(self, lock: endpoint.WardenLock, *, idle: float = IDLE_SECONDS) -> None:
        self._idle_timer: Timer | None = None
        self._retired = False
        self.used = False  # somebody has asked for something
        self.stopping = False
        self._shutting_down = False
        self._lock = lock
        self._idle_seconds = idle
        self.sessions = LazySessions(run_to_end, prewarm=True)
        self.context = LoopContext(
            RunQueue(),
            own_process=become_subreaper(),
            on_leftover=self.keep_leftover,
            sessions=self.sessions,
        )
        self.loop = self.context.loop
        self.files = RunFiles("warden")
        self.hosted: dict[str, HostedRun] = {}
        self.leftover_pipes: set[LeftoverPipes] = set()
        self.connections: set[ServerConnection] = set()
        self.recovery = Recovery(self.context, self.files)
        self._socket = endpoint.open_socket()
        self._listen()
        lock.write_owner(run_owner.own_id("warden"))
        self.schedule_idle_exit()

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self.loop.watch(self._socket.fileno(), self._accept)

    def serve(self) -> None:
        """Until there is nothing to do for a while."""
        self.loop.post(self.recovery.start)
        while not self.stopping:
            try:
                self.loop.step()
            except Exception:  # noqa: BLE001 - whatever went wrong with one must not end the others
                log_exception()
                time.sleep(_RETRY_INTERVAL)
        self.close()

    def close(self) -> None:
        endpoint.remove_own_socket()
        for connection in list(self.connections):
            connection.close()
        self.loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._lock.release()
        self.files.close()
        self.sessions.close()
        self.context.close()

    def schedule_idle_exit(self) -> None:
        """Called whenever something has ended: go, after a while in which nothing begins."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if not self._busy:
            patience = (
                self._idle_seconds if self.used else max(_FIRST_REQUEST_TIME, self._idle_seconds)
            )
            if self._retired and not self.connections:
                patience = 0.0
            self._idle_timer = self.loop.call_later(patience, self._exit_if_idle)

    @property
    def _busy(self) -> bool:
        if self._shutting_down:
            return bool(self.hosted)
        asked = any(connection.pending for connection in self.connections)
        return bool(self.hosted or self.leftover_pipes or asked or self.recovery.busy)

    def _exit_if_idle(self) -> None:
        """Nothing that comes from now on is begun; whoever has asked is told so, and asks again."""
        if self._busy:
            self.schedule_idle_exit()
            return
        self.retire()
        for connection in list(self.connections):
            connection.send(Leaving())
        self.stopping = True

    def retire(self) -> None:
        """A newer one shall have our place. What we have stays with us, under our own name."""
        if not self._retired:
            self._retired = True
            self.recovery.drop()  # the next one sees to that
            endpoint.remove_public_socket()
            self._lock.release()
            self.schedule_idle_exit()

    def shut_down(self) -> None:
        """We are asked to go: orderly, with all that we run."""
        self._shutting_down, self.used, self._idle_seconds = True, True, 0.0
        for hosted in list(self.hosted.values()):
            hosted.run.cancel()
        self.retire()
        self.schedule_idle_exit()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:  # it has gone meanwhile
            return
        except OSError:  # there is no descriptor for it: a little later there may be
            self.loop.unwatch(self._socket.fileno())
            self.loop.call_later(_RETRY_INTERVAL, self._listen)
            return
        if endpoint.read_peer(connection)[1] != os.getuid():
            connection.close()
            return
        self.connections.add(ServerConnection(self, connection))

    # What is asked.

    def start_run(self, request: requests.StartRun, client: PendingRequest) -> None:
        """Raises Refused."""
        if self._shutting_down:
            raise Refused(Unavailable(problem="this warden is asked to go; ask again in a moment"))
        if request.plan.keep.whole > MAX_KEPT or request.plan.keep.tail > MAX_KEPT:
            raise Refused(Unavailable(problem=f"more than {MAX_KEPT} bytes cannot be answered"))
        known = None if request.number is None else self.hosted.get(f"r{request.number}")
        if known is not None and known.workspace == request.workspace:
            client.hosted_run = known  # it has lost its line, and asks again
            known.wait(client, request.wait_limit)
            return
        if (
            request.idempotency_key is not None
            and (earlier := self._find_earlier(request, request.idempotency_key)) is not None
        ):
            client.respond(earlier)
            return
        try:
            self._check_limit(request)
            record = RunRecord(self.files, request.plan, request.workspace, request.number)
            hosted = client.hosted_run = HostedRun(
                request, client, record, self.context, self._on_run_end
            )
            if request.wait_limit == 0 or request.watched:
                _prepare_output(record)
        except BaseException:
            if request.number is not None:
                release_claim(request, request.number)
            raise
        self.hosted[hosted.name] = hosted
        hosted.start()

    def _find_earlier(
        self, request: requests.StartRun, key: requests.IdempotencyKey
    ) -> requests.AlreadyStarted | None:
        """The run that was made of the same request before. Raises Refused."""
        if request.number is None:
            raise Refused(Unavailable(problem="a request needs the number of its run"))
        run = claim_run(key, request.workspace, request.number, "warden")
        return None if run == request.number else requests.AlreadyStarted(run=f"r{run}")

    def _check_limit(self, request: requests.StartRun) -> None:
        """Raises Refused."""
        if request.max_live is None or (request.job and request.wait_limit != 0):
            return
        live = [
            (each.name, each.command)
            for each in self.hosted.values()
            if each.workspace == request.workspace
            and (not request.job or (each.detached and each.job))
        ]
        if len(live) >= request.max_live:
            kind = "background jobs" if request.job else "commands"
            raise Refused(TooMany(limit=request.max_live, runs=tuple(live), kind=kind))

    def find(self, name: str, workspace: bytes) -> HostedRun:
        """Raises Refused: a run of another workspace is not found, either."""
        hosted = self.hosted.get(name)
        if hosted is None or hosted.workspace != workspace:
            raise Refused(UnknownRun(run=name))
        return hosted

    def _on_run_end(self, hosted: HostedRun, outcome: Outcome) -> None:
        self.hosted.pop(hosted.name, None)
        if isinstance(outcome.ending, NotStarted) and hosted.request.number is not None:
            release_claim(hosted.request, hosted.request.number)
        if outcome.output.size > _TRIM_ABOVE:
            trim_memory()
        self.schedule_idle_exit()

    # What is left running.

    def keep_leftover(self, leftover: LeftoverPipes) -> None:
        """The pipes of a run of ours that has ended, but left something running."""
        if leftover.workspace is not None:
            self._append_late_output(leftover, leftover.workspace, leftover.limit)
        else:
            self._watch_leftover(leftover, None)

    def adopt_pipes(self, frame: Adopt, fds: list[int]) -> None:
        """Somebody else's run has left something running, and here are its pipes."""
        self.used = True
        readers = {}
        for stream, fd in zip(frame.streams, fds, strict=False):
            os.set_blocking(fd, False)
            readers[stream] = PipeReader(fd, self.context.pipe_growth)
        if readers:
            leftover = LeftoverPipes(readers, None)
            leftover.run = frame.run
            self._append_late_output(leftover, frame.workspace, frame.limit)
            self.schedule_idle_exit()

    def _append_late_output(self, leftover: LeftoverPipes, workspace: bytes, limit: int) -> None:
        late: LateOutput | None = None
        with suppress(LookupError, OSError):
            found = stored_run.find_run(stored_run.parse_run_id(leftover.run), workspace)
            late = LateOutput(found, limit)
            leftover.on_data = late.append
        self._watch_leftover(leftover, late)

    def _watch_leftover(self, leftover: LeftoverPipes, late: LateOutput | None) -> None:
        self.leftover_pipes.add(leftover)
        leftover.on_close = lambda: self._on_leftover_closed(leftover, late)
        watch(leftover, self.loop)

    def _on_leftover_closed(self, leftover: LeftoverPipes, late: LateOutput | None) -> None:
        self.leftover_pipes.discard(leftover)
        if late is not None:
            late.close()
        self.schedule_idle_exit()


def log_exception() -> None:
    """Into our log, of what should not have happened; not without end."""
    import traceback

    with suppress(OSError):
        if os.fstat(2).st_size > _MAX_LOG:
            os.ftruncate(2, 0)
    traceback.print_exc()


def _prepare_output(record: RunRecord) -> None:
    """What nobody waits for must be kept, or not begun. Raises Refused."""
    try:
        record.prepare_output()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        why = Unavailable(problem=f"its output cannot be kept: {error.strerror or error}{where}")
        # Its first line may be written: nobody shall wait for the end of what never began.
        record.write_end(Outcome(run=record.name, ending=NotStarted(why), output=Capture()))
        raise Refused(why) from None
