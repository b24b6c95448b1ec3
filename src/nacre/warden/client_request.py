"""One request to the warden (nacre's daemon); this process can wait for it and cancel it like a
local run."""

import signal as signals
from collections.abc import Callable
from typing import Final

from nacre.engine.listener_thread import ListenerThread, start_listener_thread
from nacre.engine.loop_context import LoopContext
from nacre.model import requests
from nacre.model.events import Chunk, Finished, Listening, Started
from nacre.model.outcome import Capture, NotStarted, Outcome
from nacre.model.refusals import AnyRefusal, CalledOff, Unavailable, UnknownRun
from nacre.model.requests import Rejected, Request, Response, Running
from nacre.warden.client_connection import WardenConnection, connection_for
from nacre.warden.protocol import Credit, DetachNow

# maximum seconds that the response to a cancelled request is kept back for a slow listener
_CANCELLED_LINGER: Final = 1.0

# Function that looks up a client's run after the client has lost its connection to the warden. The
# lookup of a run returns the outcome of an ended run, a `Wait` request for a live run, or None for
# a run that was never started and may be requested again.
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
        """Create the request object without sending it to the warden.

        `connection`, if given, is a connection to the warden that no other request uses. If the
        warden has a run's output only on disk, `fill_output` reads the output and adds it to the
        outcome.
        """
        self.number = 0  # id of the request, unique in its connection
        # whether the warden has detached the run, which then continues in the background
        self.detached = False
        self._retries = 2  # how often the request may still be sent again after a lost connection
        self._on_disk = False  # whether the warden has the run's output only on disk
        # Number of received output bytes for which the warden has not yet got new credit
        # (permission to send more output).
        self._uncredited = 0
        self._cancelled = False
        self._detach_requested = False
        # The warden's final response, kept back until the listener has received all events of the
        # run.
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

    # Methods called by the supervisor, the object that drives all operations of an event loop.

    def start(self) -> None:
        self._connection.send_request(self)

    def cancel(self, number: int = signals.SIGTERM) -> None:
        self._cancelled = True
        if self._on_answer is None:
            return
        if self._pending_response is not None:
            # The warden's response has already arrived, so `cancel` passes it to the caller at once
            # instead of waiting until the listener has received all events.
            self._deliver()
        elif not self._connection.cancel(self, number):
            self.on_refused(CalledOff())  # the request was never sent to the warden

    def detach_now(self) -> None:
        """Ask the warden to detach the run now, or as soon as the run has started."""
        self._detach_requested = True
        self._connection.send_frame(self, DetachNow(self.number))

    def on_sent(self) -> None:
        """After the request was sent, or sent again to another warden, also send the `DetachNow`
        frame if the caller has asked to detach the run."""
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

    # Methods that the connection to the warden calls.

    def on_response(self, answer: Response) -> None:
        if isinstance(answer, Running):
            self.detached = self._on_disk = True
            if self._listener is None:
                self._connection.forget(self)
            self._settle(answer)
            return
        self._connection.forget(self)
        if isinstance(answer, Rejected) and isinstance(answer.refusal, UnknownRun):
            answer = self._find_recorded_outcome() or answer
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
        """Respond to the caller after the connection to the warden was lost, or prepare to send
        the caller's request to the warden again.

        Return False if the request must be sent again, to the same warden or to the next one.
        Sending a request again is safe, because the warden records each run before it starts the
        run.
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

    def _find_recorded_outcome(self) -> Outcome | None:
        """Return the recorded outcome of this request's run, or None if the run has not ended. The
        caller looks it up when the warden no longer has the run, which can end before a lost
        connection is replaced."""
        known = None if self._find_lost is None else self._find_lost()
        return known if isinstance(known, Outcome) else None

    def _deliver(self) -> None:
        answer, self._pending_response = self._pending_response, None
        if answer is not None:
            self._settle(answer)

    def _settle(self, answer: Response) -> None:
        """Pass the warden's response to the caller; a second response is ignored."""
        tell, self._on_answer = self._on_answer, None
        if self._owns_connection:
            self._connection.close()
        if tell is not None:
            tell(answer)

    # Methods that pass a run's events to the listener in this process.

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
    """Convert the warden's response to the outcome that a listener gets with its last event."""
    if isinstance(answer, Outcome):
        return answer
    why = answer.refusal if isinstance(answer, Rejected) else CalledOff()
    return Outcome(run=name, ending=NotStarted(why), output=Capture())
