"""Delivering a run's events to a listener, a callback that may be slow, raise or never return.

The thread that drives the event loop only appends a run's events to a buffer; one helper thread per
run calls the listener, one event at a time and in order. Output that arrives while the listener is
busy is joined into one chunk, so a slow listener is called less often and its delay does not grow.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from nacre.engine.event_buffer import EventBuffer
from nacre.eventloop import Callback as LoopCall
from nacre.eventloop import EventLoop, now
from nacre.model.events import Chunk, Event, Finished, Full, Listening, Started, Stream
from nacre.model.refusals import NoProcesses, Refused

AnyCallback = Callable[[], object]


class EventSink(Protocol):
    """Receiver of a run's events: a listener in this process, or a client of the warden (nacre's
    daemon)."""

    @property
    def full(self) -> bool:
        """Return whether the command must wait because the buffer of its listener is full."""
        ...

    @property
    def linger(self) -> float | None: ...

    def on_started(self, event: Started) -> None: ...

    def on_chunk(self, stream: Stream, data: bytes | bytearray, *, may_skip: bool) -> None: ...

    def on_finished(self, event: Finished) -> None:
        """Accept the last event of a run without waiting for its delivery; the receiver calls
        `on_delivered` when no event is left to deliver."""
        ...

    def join(self) -> None: ...


def start_listener_thread(
    listening: Listening, loop: EventLoop, *, on_room: LoopCall, on_delivered: LoopCall
) -> "ListenerThread":
    """Start the thread that calls a listener. The callbacks `on_room` and `on_delivered` run on the
    event loop, not in the listener's thread. Raises Refused when no thread can be started."""
    try:
        return ListenerThread(
            listening,
            on_room=lambda: loop.post(on_room),
            on_delivered=lambda: loop.post(on_delivered),
        )
    except RuntimeError as error:
        raise Refused(NoProcesses()) from error


class EventThread(threading.Thread):
    """Thread that calls a listener; by this class, `Engine.close` recognizes a call from inside a
    listener."""


class ListenerThread:
    def __init__(
        self, options: Listening, *, on_room: AnyCallback, on_delivered: AnyCallback
    ) -> None:
        """`on_room` is called when the listener's full buffer may have room again. `on_delivered`
        is called after the listener has received the last event."""
        self._run = ""  # id of the run whose events are delivered; empty until the run has started
        self._abandoned = False
        self._options = options
        self._on_room = on_room
        self._on_delivered = on_delivered
        self._changed = threading.Condition()
        self._started: Started | None = None
        self._buffer = EventBuffer(options.buffer)
        self._finished: Finished | None = None
        self._next = 0.0  # monotonic time before which the listener gets no further chunk of output
        self._thread = EventThread(target=self._deliver_events, name="nacre-listen", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Return whether the command must wait because the buffer of its listener is full."""
        return self._options.full is Full.WAIT and self._buffer.full

    @property
    def linger(self) -> float | None:
        return self._options.linger

    def on_started(self, event: Started) -> None:
        with self._changed:
            self._run = event.run
            self._started = event
            self._changed.notify()

    def on_chunk(self, stream: Stream, data: bytes | bytearray, *, may_skip: bool) -> None:
        """Append output of the run to the listener's buffer. If `may_skip` is True, the oldest
        output beyond the buffer's limit is dropped, even if the listener asked for backpressure."""
        with self._changed:
            self._buffer.append(stream, data)
            if may_skip or self._options.full is Full.SKIP:
                self._buffer.drop_oldest()
            self._changed.notify()

    def add_skipped(self, stream: Stream, count: int) -> None:
        """Count output bytes that were dropped before they reached the listener's buffer."""
        with self._changed:
            self._buffer.add_skipped(stream, count)

    def on_finished(self, event: Finished) -> None:
        with self._changed:
            self._finished = event
            self._changed.notify()

    def abandon(self) -> None:
        """Deliver no further events to the listener, not even the event that the run has
        finished."""
        with self._changed:
            self._abandoned = True
            self._changed.notify()

    def join(self) -> None:
        """Join the listener's thread; the caller must first wait for `on_delivered`, after which
        the thread ends."""
        self._thread.join()

    def _deliver_events(self) -> None:
        try:
            while (event := self._next_event()) is not None:
                self._call(event)
                if isinstance(event, Finished):
                    break
        finally:
            self._on_delivered()

    def _call(self, event: Event) -> None:
        try:
            self._options.listener(event)
        except BaseException:  # noqa: BLE001 - no exception of a listener may affect the run
            return

    def _next_event(self) -> Event | None:
        """Wait for the listener's next event and return it; return None after a call of `abandon`.
        A chunk of output is held back until the listener's minimum interval between two chunks has
        passed."""
        with self._changed:
            while (event := self._pop_ready()) is None and not self._abandoned:
                waiting = bool(self._buffer)
                self._changed.wait(max(0.0, self._next - now()) if waiting else None)
        if isinstance(event, Chunk) and self._options.full is Full.WAIT:
            self._on_room()
        return event

    def _pop_ready(self) -> Event | None:
        if self._started is not None:
            started, self._started = self._started, None
            return started
        if self._buffer:
            if self._finished is None and now() < self._next:
                return None
            self._next = now() + self._options.every
            return self._buffer.pop(self._run)
        if self._finished is not None and (skipped := self._buffer.pop_skipped(self._run)):
            return skipped
        return self._finished
