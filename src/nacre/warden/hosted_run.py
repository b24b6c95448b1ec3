"""One run that the warden (nacre's daemon) executes, with the client that started it and the
clients that wait for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nacre.engine.input_wait import InputWaitDetector
from nacre.engine.loop_context import LoopContext
from nacre.engine.run import Run
from nacre.eventloop import Timer
from nacre.model import requests
from nacre.model.outcome import Outcome
from nacre.model.plan import OpenStdin
from nacre.model.requests import Running
from nacre.store.run_record import RunRecord
from nacre.text.clean import decode
from nacre.warden.event_stream import EventStream

if TYPE_CHECKING:
    from nacre.warden.server_connection import PendingRequest

# Seconds from the start of a run until its output is also written to disk, where other processes
# can read it while the run continues.
_DISK_DELAY = 0.25
# Seconds between two checks whether the user's shell startup files have been read.
_SETUP_POLL = 0.1

OnHostedEnd = Callable[["HostedRun", Outcome], None]


class HostedRun:
    def __init__(
        self,
        request: requests.StartRun,
        client: "PendingRequest",
        record: RunRecord,
        context: LoopContext,
        on_end: OnHostedEnd,
    ) -> None:
        self.detached = False
        self._wait_timer: Timer | None = None
        self._disk_timer: Timer | None = None
        self.request = request
        self._record = record
        self.workspace = request.workspace
        self.command = decode(request.plan.command.original)
        # The client that started the run; None after its last response or after it has
        # disconnected.
        self._client: PendingRequest | None = client
        self.job = request.job
        self._waiters: dict[PendingRequest, Timer | None] = {}
        # Clients that wait for the run and also get a response when the run waits for input on its
        # stdin.
        self._input_waiters: set[PendingRequest] = set()
        self._context = context
        self._on_end = on_end
        self.event_stream: EventStream | None = None
        if request.listen is not None:
            self.event_stream = EventStream(
                request.listen,
                client.send_event,
                on_room=self._on_room,
                on_delivered=self._on_delivered,
            )
        self.run = Run(
            "",
            request.plan,
            context,
            event_sink=self.event_stream,
            record=record,
            on_outcome=self._on_outcome,
            on_started=self._on_started,
        )
        self.name = self.run.name = record.assign_name()
        self._input_wait = InputWaitDetector(context.loop, self.run.question, self._on_input_wait)

    def start(self) -> None:
        self.run.start()
        if self.run.queued:
            loop = self._context.loop
            self._disk_timer = loop.call_later(_DISK_DELAY, self._list_queued)
            if self.request.wait_limit is not None:
                self._wait_timer = loop.call_later(self.request.wait_limit, self._on_queue_timeout)

    def _list_queued(self) -> None:
        """Write the start entry of a queued run, with which other processes can find the run."""
        if self.run.queued:
            self._record.write_start()

    def _on_queue_timeout(self) -> None:
        """Tell the client that its run is still queued, because the wait limit is over.

        The time for reading the user's shell startup files, which happens once, does not count
        against the wait limit, nor does the time in which a new warden collects calls.
        """
        if self.run.reads_setup or self._context.queue.lanes_closed:
            self._wait_timer = self._context.loop.call_later(_SETUP_POLL, self._on_queue_timeout)
        else:
            self._on_wait_over()

    def wait(
        self, client: "PendingRequest", wait_limit: float | None, *, for_input: bool = False
    ) -> None:
        """Register a further client, which gets a response when the run ends or the wait limit is
        over.

        With `for_input`, the client also gets a response when the run waits for input on its stdin.
        """
        timer = None
        if wait_limit is not None:
            timer = self._context.loop.call_later(
                max(0.0, wait_limit), lambda: self._respond_running(client)
            )
        self._waiters[client] = timer
        if for_input and isinstance(self.request.plan.stdin, OpenStdin):
            self._input_waiters.add(client)
            self._input_wait.begin()

    def detach_now(self, client: "PendingRequest") -> None:
        """Respond to a waiting client now, before the run has ended; the run continues."""
        if client is self._client:
            self._on_wait_over()
        else:
            self._respond_running(client)

    def disconnect(self, client: "PendingRequest") -> None:
        """Drop a client that has disconnected or cancelled its wait; the run continues."""
        self._remove_waiter(client)
        if client is self._client:
            self._client = None
            self._list_queued()
            self._detach()
            if self.event_stream is not None:
                self.event_stream.disconnect()

    def _remove_waiter(self, client: "PendingRequest") -> None:
        timer = self._waiters.pop(client, None)
        if timer is not None:
            timer.cancel()
        self._input_waiters.discard(client)

    def _on_started(self) -> None:
        loop, patience = self._context.loop, self.request.wait_limit
        if self._client is None:
            self._detach()  # the client disconnected while the run was queued
        elif patience is not None and patience <= 0:
            self._on_wait_over()
        else:
            if self._disk_timer is not None:
                self._disk_timer.cancel()  # timer that lists the queued run
            self._disk_timer = loop.call_later(
                0.0 if self.request.watched else _DISK_DELAY, self._copy_to_disk
            )
            if patience is not None:
                if self._wait_timer is not None:
                    self._wait_timer.cancel()  # timer that limited the run's time in the queue
                self._wait_timer = loop.call_later(patience, self._on_wait_over)
                if isinstance(self.request.plan.stdin, OpenStdin):
                    self._input_wait.begin()

    def _on_input_wait(self) -> None:
        """Respond to the clients that get a response when the run waits for input on its stdin."""
        if self._client is not None and self.request.wait_limit is not None:
            self._on_wait_over(waits_for_input=True)
        for client in list(self._input_waiters):
            self._respond_running(client, waits_for_input=True)

    def _on_wait_over(self, *, waits_for_input: bool = False) -> None:
        """Detach the run and tell the client that started it that the run continues."""
        if not self.run.started and not self.run.queued:
            return  # the run is about to end, and its outcome is a better response than `Running`
        running, client = self._detach(), self._client
        if self.run.queued:
            self._list_queued()
            running = self.run.snapshot()
        if running is not None and waits_for_input:
            running = self.run.with_input_wait(running)
        if self.event_stream is None:
            # For a client without an event stream, `Running` is the last response; a client with an
            # event stream also gets the outcome when the run ends.
            self._client = None
        if client is not None and running is not None:
            client.respond(running, last=self.event_stream is None)

    def _copy_to_disk(self) -> None:
        if self.run.started:
            self.run.copy_to_disk()

    def _detach(self) -> Running | None:
        if self.detached or not self.run.started:
            return None
        self.detached = True
        return self.run.detach(job=self.job)

    def _respond_running(self, client: "PendingRequest", *, waits_for_input: bool = False) -> None:
        """Send a waiting client a snapshot of the live run, and remove the client from the waiting
        clients."""
        if client in self._waiters:
            waits_for_input = waits_for_input or (
                client in self._input_waiters and self.run.question() is not None
            )
            self._remove_waiter(client)
            running = self.run.snapshot()
            client.respond(self.run.with_input_wait(running) if waits_for_input else running)

    def _on_outcome(self, outcome: Outcome) -> None:
        self._input_wait.stop()
        for timer in (self._wait_timer, self._disk_timer):
            if timer is not None:
                timer.cancel()
        waiting, self._waiters = self._waiters, {}
        client, self._client = self._client, None
        try:
            if client is not None:
                client.respond(outcome)
            for each, timer in waiting.items():
                if timer is not None:
                    timer.cancel()
                each.respond(outcome)
        finally:
            self._on_end(self, outcome)

    def _on_room(self) -> None:
        self._context.loop.post(self.run.on_listener_room)

    def _on_delivered(self) -> None:
        self._context.loop.post(self.run.on_listener_done)
