"""A run's events on their way to a client that may be slow, or gone.

The client says how much it has room for; what is sent beyond that would only pile up in the socket.
What waits here is bounded, too: then the oldest is dropped and counted, or, if the client wishes
so, the command waits. No thread: everything happens on the warden's loop.
"""

from collections.abc import Callable
from typing import Final

from nacre.engine.event_buffer import EventBuffer
from nacre.eventloop import Callback
from nacre.model.events import Chunk, Finished, Full, Started, Stream
from nacre.model.requests import ListenOptions

INITIAL_WINDOW: Final = 256 * 1024  # what a client has room for at first
_MAX_CHUNK: Final = 64 * 1024
_LINGER: Final = 5.0


class EventStream:
    def __init__(
        self,
        options: ListenOptions,
        send: Callable[[Started | Chunk], None],
        *,
        on_room: Callback,
        on_delivered: Callback,
    ) -> None:
        """`on_room` is called when a full buffer has room again, `on_delivered` at the end."""
        self.linger: float | None = _LINGER
        self._run = ""
        self._finished = False
        self._disconnected = False
        self._options = options
        self._send = send
        self._on_room = on_room
        self._on_delivered = on_delivered
        self._window = INITIAL_WINDOW
        self._buffer = EventBuffer(options.buffer, _MAX_CHUNK)

    @property
    def full(self) -> bool:
        waits = self._options.full is Full.WAIT and not self._disconnected
        return waits and self._buffer.full

    def on_started(self, event: Started) -> None:
        self._run = event.run
        if not self._disconnected:
            self._send(event)

    def on_chunk(self, stream: Stream, data: bytes | bytearray, *, may_skip: bool) -> None:
        if self._disconnected:
            return
        self._buffer.append(stream, data)
        if may_skip or self._options.full is Full.SKIP:
            self._buffer.drop_oldest()
        self._flush()

    def on_finished(self, event: Finished) -> None:
        del event  # the answer says it
        self._finished = True
        self._flush()

    def join(self) -> None:
        """There is no thread to be waited for."""

    def add_credit(self, count: int) -> None:
        """The client has heard so many bytes."""
        was_full = self.full
        self._window += count
        self._flush()
        if was_full and not self.full:
            self._on_room()

    def disconnect(self) -> None:
        """The client is gone; the command goes on."""
        was_full = self.full
        self._disconnected = True
        self._buffer.clear()
        if was_full:
            self._on_room()
        if self._finished:
            self._on_delivered()

    def _flush(self) -> None:
        while self._buffer and self._window > 0:
            chunk = self._buffer.pop(self._run, min(_MAX_CHUNK, self._window))
            self._window -= len(chunk.data)
            self._send(chunk)
        if self._finished and not self._buffer:
            while (skipped := self._buffer.pop_skipped(self._run)) is not None:
                self._send(skipped)
            self._on_delivered()
