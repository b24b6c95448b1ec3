"""Sender of one run's events from the warden to a client that may be slow or disconnected.

The client grants the warden credit: the number of output bytes that the client has room for. The
warden sends no output beyond the client's credit (the bytes that the client has room for), because
that output would only pile up in the socket. Output that the client has no room for is kept in a
bounded buffer; when the buffer is full, the oldest output is dropped and counted. If the client
asked for backpressure, the warden drops no output: the command blocks while the warden's buffer for
the client is full. Sending events needs no thread, because everything happens on the warden's event
loop.
"""

from collections.abc import Callable
from typing import Final

from nacre.engine.event_buffer import EventBuffer
from nacre.eventloop import Callback
from nacre.model.events import Chunk, Finished, Full, Started, Stream
from nacre.model.requests import ListenOptions

# Number of output bytes that the warden may send to a client that has not yet asked for more.
INITIAL_WINDOW: Final = 256 * 1024
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
        """Create the event stream of one run.

        `on_room` is called when the buffer of unsent output, which was full, has room again.
        `on_delivered` is called when the run has finished and either its last event was sent or its
        client has disconnected.
        """
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
        # The event `Finished` is not sent, because the warden's response to the client contains the
        # run's outcome.
        del event
        self._finished = True
        self._flush()

    def join(self) -> None:
        """Do nothing: an event stream has no thread to wait for."""

    def add_credit(self, count: int) -> None:
        """Allow `count` more bytes to be sent to the client, because the client has room for
        them."""
        was_full = self.full
        self._window += count
        self._flush()
        if was_full and not self.full:
            self._on_room()

    def disconnect(self) -> None:
        """Stop sending events, because the client has disconnected; the command continues."""
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
