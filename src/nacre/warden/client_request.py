"""One request to the warden, which this process waits for and cancels like a local run."""

import signal as signals
from collections.abc import Callable
from typing import Final

from nacre.engine.listener_thread import ListenerThread, start_listener_thread
from nacre.engine.loop_context import LoopContext
from nacre.model import requests
from nacre.model.events import Chunk, Finished, Listening, Started
from nacre.model.outcome import Capture, NotStarted, Outcome
from nacre.model.refusals import AnyRefusal, CalledOff, Unavailable
from nacre.model.requests import Rejected, Request, Response, Running
from nacre.warden.client_connection import WardenConnection, connection_for
from nacre.warden.protocol import Credit, DetachNow

_CANCELLED_LINGER: Final = 1.0  # seconds to wait for the listener of a cancelled request

# Function that looks up a run whose warden has closed the connection. Its result is the outcome if
# the run has ended, a `Wait` request if the run still lives, or None if the run was never started.
# A run that was never started may be requested again.
FindLostRun = Callable[[], Outcome | requests.Wait | None]


class WardenRequest:
    def __init__(
        self,
        request: Request,
        context: LoopContext,
        answer: Callable[[Response], None],
        *,
        name: str = "",
        connection: WardenConnection | None = None,
        find_lost: FindLostRun | None = None,
        fill_output: Callable[[Outcome], Outcome] | None = None,
        listening: Listening | None = None,
    ) -> None:
        """Create the request without sending it.

        `connection`, if given, is used by this request alone. `fill_output` adds the output to the
        outcome of a run whose output the warden has on disk only.
        """
        self.number = 0  # id of the request in its connection
        self.detached = False  # the warden has responded that the run continues
        self._retries = 2  # how often the request may still be sent again
        self._on_disk = False  # the warden has the run's output on disk only
        self._uncredited = 0  # bytes received for which the warden got no credit yet
        self._cancelled = False
        self._detach_requested = False
        # The final response, held back until the listener has received all events.
        self._pending_response: Response | None = None
        self.name = name
        self.request = request
        self._context = context
        self._on_answer: Callable[[Response], None] | None = answer
        self._find_lost = find_lost
        self._fill_output = fill_output
        self._connection = connection or connection_for(context)
        self._owns_connection = connection is not None
        self._listening = listening
        self._listener = None if listening is None else self._start_listener(listening)

    # Called by the supervisor.

    def start(self) -> None:
        self._connection.send_request(self)

    def cancel(self, number: int = signals.SIGTERM) -> None:
        self._cancelled = True
        if self._on_answer is None:
            return
        if self._pending_response is not None:
            self._deliver()  # only the listener is still busy; a cancel does not wait for it
        elif not self._connection.cancel(self, number):
            self.on_refused(CalledOff())  # the request was never sent

    def detach_now(self) -> None:
        """Ask the warden to detach the run now, or as soon as it has started."""
        self._detach_requested = True
        self._connection.send_frame(self, DetachNow(self.number))

    def on_sent(self) -> None:
        """Repeat a `DetachNow` frame when the request was sent again, perhaps to another warden."""
        if self._detach_requested:
            self._connection.send_frame(self, DetachNow(self.number))

    def give_up(self) -> None:
        """Cancel the request and ignore its response."""
        self._connection.cancel(self, signals.SIGTERM)
        self._connection.forget(self)
        self._on_answer = None
        if self._owns_connection:
            self._connection.close()

    def signal(self, number: int) -> None:
        if isinstance(self.request, requests.StartRun):
            request = requests.Signal(
                run=self.name, workspace=self.request.workspace, signal=number
            )
            self._connection.send_unanswered(request)

    def resume(self) -> None:
        self._connection.resume()

    # Called by the connection.

    def on_response(self, answer: Response) -> None:
        if isinstance(answer, Running):
            self.detached = self._on_disk = True
            if self._listener is None:
                self._connection.forget(self)
            self._settle(answer)
            return
        self._connection.forget(self)
        if isinstance(answer, Outcome) and self._on_disk and self._fill_output is not None:
            answer = self._fill_output(answer)
        if self._listener is None or self._listening is None:
            self._settle(answer)
            return
        self._pending_response = answer
        self._listener.on_finished(
            Finished(run=self.name, outcome=_final_outcome(self.name, answer))
        )
        linger = self._listening.linger
        if self._cancelled:
            linger = _CANCELLED_LINGER if linger is None else min(linger, _CANCELLED_LINGER)
        if linger is not None and self._on_answer is not None:
            self._context.loop.call_later(linger, self._deliver)

    def on_event(self, event: Started | Chunk) -> None:
        if self._listener is None:
            return
        if isinstance(event, Started):
            self.name = event.run
            self._listener.on_started(event)
            return
        if event.skipped:
            self._listener.add_skipped(event.stream, event.skipped)
        self._listener.on_chunk(event.stream, event.data, may_skip=self._cancelled)
        self._uncredited += len(event.data)
        if not self._listener.full:
            self._on_room()

    def on_refused(self, refusal: AnyRefusal) -> None:
        self.on_response(Rejected(refusal=refusal))

    def on_lost(self) -> bool:
        """Handle a connection that the warden has closed.

        Return False if the request must be sent again, to this warden or to the next one. Sending
        again is safe, because the warden records each run before it starts the run.
        """
        if self._find_lost is None:
            self.on_refused(Unavailable(problem="the warden died before it responded; retry"))
            return True
        known = self._find_lost()
        if isinstance(known, requests.Wait):
            self.request, self._on_disk = known, True
        if not isinstance(known, Outcome) and self._retries > 0 and not self._cancelled:
            self._retries -= 1
            return False
        if isinstance(known, Outcome):
            self.on_response(known)
        else:
            self.on_refused(
                Unavailable(problem="the warden died before it started the command; retry")
            )
        return True

    def stop_listening(self) -> None:
        """Stop calling the listener of this request."""
        if self._listener is not None:
            self._listener.abandon()

    def _deliver(self) -> None:
        answer, self._pending_response = self._pending_response, None
        if answer is not None:
            self._settle(answer)

    def _settle(self, answer: Response) -> None:
        """Pass the response to the caller; a second response is ignored."""
        tell, self._on_answer = self._on_answer, None
        if self._owns_connection:
            self._connection.close()
        if tell is not None:
            tell(answer)

    # Passing events to the listener in this process.

    def _start_listener(self, listening: Listening) -> ListenerThread:
        return start_listener_thread(
            listening, self._context.loop, on_room=self._on_room, on_delivered=self._on_delivered
        )

    def _on_room(self) -> None:
        owed, self._uncredited = self._uncredited, 0
        if owed:
            self._connection.send_frame(self, Credit(self.number, owed))

    def _on_delivered(self) -> None:
        if self._listener is not None:
            self._listener.join()
        self._deliver()


def _final_outcome(name: str, answer: Response) -> Outcome:
    """Return the outcome for the last event that a listener gets."""
    if isinstance(answer, Outcome):
        return answer
    why = answer.refusal if isinstance(answer, Rejected) else CalledOff()
    return Outcome(run=name, ending=NotStarted(why), output=Capture())
