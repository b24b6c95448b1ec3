"""Events on their way to a listener, which may be slow, or raise, or never come back.

The driving thread only appends here; one helper thread, for this call only, calls the listener,
one event at a time and in order. What comes while the listener is busy is joined into one
chunk, so a listener that is slow hears less often, not later and later.
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
    """Somebody who hears what a run says, here or far away."""

    @property
    def full(self) -> bool:
        """Whether the command should wait for the listener."""
        ...

    @property
    def linger(self) -> float | None: ...

    def on_started(self, event: Started) -> None: ...

    def on_chunk(self, stream: Stream, data: bytes | bytearray, *, may_skip: bool) -> None: ...

    def on_finished(self, event: Finished) -> None:
        """Says some time later that all has been heard."""
        ...

    def join(self) -> None: ...


def start_listener_thread(
    listening: Listening, loop: EventLoop, *, on_room: LoopCall, on_delivered: LoopCall
) -> "ListenerThread":
    """A relay whose calls are made by whoever drives the loop. Raises Refused when no thread can be
    started."""
    try:
        return ListenerThread(
            listening,
            on_room=lambda: loop.post(on_room),
            on_delivered=lambda: loop.post(on_delivered),
        )
    except RuntimeError as error:
        raise Refused(NoProcesses()) from error


class EventThread(threading.Thread):
    """The thread that a listener is called on."""


class ListenerThread:
    def __init__(
        self, options: Listening, *, on_room: AnyCallback, on_delivered: AnyCallback
    ) -> None:
        """`on_room` is called when a full buffer has room again, `on_delivered` at the end."""
        self._run = ""  # the run's name, once it has started
        self._abandoned = False
        self._options = options
        self._on_room = on_room
        self._on_delivered = on_delivered
        self._changed = threading.Condition()
        self._started: Started | None = None
        self._buffer = EventBuffer(options.buffer)
        self._finished: Finished | None = None
        self._next = 0.0  # when the listener wants its next chunk
        self._thread = EventThread(target=self._deliver_events, name="nacre-listen", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether the command should wait for the listener."""
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
        """`may_skip`: the command can no longer be made to wait for a listener that wishes so."""
        with self._changed:
            self._buffer.append(stream, data)
            if may_skip or self._options.full is Full.SKIP:
                self._buffer.drop_oldest()
            self._changed.notify()

    def add_skipped(self, stream: Stream, count: int) -> None:
        """So many bytes have not even come here."""
        with self._changed:
            self._buffer.add_skipped(stream, count)

    def on_finished(self, event: Finished) -> None:
        with self._changed:
            self._finished = event
            self._changed.notify()

    def abandon(self) -> None:
        """Say nothing more, not even that it has ended."""
        with self._changed:
            self._abandoned = True
            self._changed.notify()

    def join(self) -> None:
        """After `on_delivered`: the thread is on its last line."""
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
        except BaseException:  # noqa: BLE001 - a listener's trouble, even its exit, is its own
            return

    def _next_event(self) -> Event | None:
        """The next event, waiting for it; chunks not before the listener wants one."""
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
