"""The warden: a small daemon that runs commands for many clients and exits when it is idle.

The warden runs commands with the same engine as a program that imports nacre. One event loop on one
thread serves all sockets, pipes and timers of the warden. When a client disconnects, its runs
continue; a Cancel frame ends a run. No client can harm other clients: an invalid frame closes only
the connection of its sender, and a client that leaves too many bytes unread is disconnected.
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

IDLE_SECONDS: Final = 60.0  # seconds without work until the warden exits
_MAX_LOG: Final = 1024 * 1024  # maximum size of the warden's log in bytes
# If a run's output has more bytes than `_TRIM_ABOVE`, the warden returns freed memory to the kernel
# after the run.
_TRIM_ABOVE: Final = 16 * 1024 * 1024
_RETRY_INTERVAL: Final = 0.05
# Seconds in which a new warden collects the calls that waited for its start, so that the calls of a
# session run in the order in which they were made.
_COLLECT_TIME: Final = 0.06
_FIRST_REQUEST_TIME: Final = 10.0  # minimum seconds that a new warden waits for its first request


class Warden:
    def __init__(self, lock: endpoint.WardenLock, *, idle: float = IDLE_SECONDS) -> None:
        self._idle_timer: Timer | None = None
        self._retired = False
        # whether a client has sent the warden a request, or the open output pipes of an ended run
        self.used = False
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
        """Run the event loop until the warden has been idle for long enough."""
        self.loop.post(self.recovery.start)
        self.context.queue.close_lanes()
        self.loop.call_later(_COLLECT_TIME, self.context.queue.open_lanes)
        while not self.stopping:
            try:
                self.loop.step()
            except Exception:  # noqa: BLE001 - an error in one run must not end the others
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
        """Restart the idle timer if the warden has no work left; called whenever some work has
        ended."""
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
        """Exit if the warden still has no work.

        When the warden exits, it sends a Leaving frame to all clients, which then send their
        unstarted requests to the next warden.
        """
        if self._busy:
            self.schedule_idle_exit()
            return
        self.retire()
        for connection in list(self.connections):
            connection.send(Leaving())
        self.stopping = True

    def retire(self) -> None:
        """Give up the lock and the public socket name, so that another process can become the
        warden.

        A retired warden, which has given up its lock, keeps its present runs, and clients still
        reach it through its own socket name.
        """
        if not self._retired:
            self._retired = True
            # The next warden, not this one, recovers runs whose owner process was killed.
            self.recovery.drop()
            endpoint.remove_public_socket()
            self._lock.release()
            self.schedule_idle_exit()

    def shut_down(self) -> None:
        """Cancel all runs and exit once they have ended."""
        self._shutting_down, self.used, self._idle_seconds = True, True, 0.0
        for hosted in list(self.hosted.values()):
            hosted.run.cancel()
        self.retire()
        self.schedule_idle_exit()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:  # the client disconnected before it was accepted
            return
        except OSError:  # no free descriptor: accept the client a little later
            self.loop.unwatch(self._socket.fileno())
            self.loop.call_later(_RETRY_INTERVAL, self._listen)
            return
        if endpoint.read_peer(connection)[1] != os.getuid():
            connection.close()
            return
        self.connections.add(ServerConnection(self, connection))

    # Requests.

    def start_run(self, request: requests.StartRun, client: PendingRequest) -> None:
        """Start a run for a client, unless an earlier copy of the same request has already started
        the run. Raises Refused."""
        if self._shutting_down:
            raise Refused(Unavailable(problem="this warden is shutting down; retry in a moment"))
        if request.plan.keep.whole > MAX_KEPT or request.plan.keep.tail > MAX_KEPT:
            raise Refused(
                Unavailable(problem=f"more than {MAX_KEPT} bytes do not fit into a response")
            )
        known = None if request.number is None else self.hosted.get(f"r{request.number}")
        if known is not None and known.workspace == request.workspace:
            client.hosted_run = known  # the client lost its connection and sends the request again
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
        """Return the run that an earlier request with the same idempotency key started, or None.
        Raises Refused."""
        if request.number is None:
            raise Refused(Unavailable(problem="a request needs the number of its run"))
        run = claim_run(key, request.workspace, request.number, "warden")
        return None if run == request.number else requests.AlreadyStarted(run=f"r{run}")

    def _check_limit(self, request: requests.StartRun) -> None:
        """Check that the workspace has fewer live runs than the request's limit. Raises Refused if
        the limit of live runs is reached."""
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
        """Return the live run with this name in the workspace. Raises Refused if the workspace has
        no live run with this name."""
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

    # Leftover processes.

    def keep_leftover(self, leftover: LeftoverPipes) -> None:
        """Keep reading the pipes of leftover processes of a run that this warden executed."""
        if leftover.workspace is not None:
            self._append_late_output(leftover, leftover.workspace, leftover.limit)
        else:
            self._watch_leftover(leftover, None)

    def adopt_pipes(self, frame: Adopt, fds: list[int]) -> None:
        """Take over the open output pipes of an ended run from the process that executed the
        run."""
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
    """Write the current exception to the warden's log; truncate a log that is too long."""
    import traceback

    with suppress(OSError):
        if os.fstat(2).st_size > _MAX_LOG:
            os.ftruncate(2, 0)
    traceback.print_exc()


def _prepare_output(record: RunRecord) -> None:
    """Create the output file of a run before the run starts.

    A run that no client waits for must not start if its output cannot be stored. Raises Refused.
    """
    try:
        record.prepare_output()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        why = Unavailable(problem=f"the output cannot be stored: {error.strerror or error}{where}")
        # Record the end of the run although its command never ran, because a process that has read
        # the run's start in the journal may wait for its end.
        record.write_end(Outcome(run=record.name, ending=NotStarted(why), output=Capture()))
        raise Refused(why) from None
