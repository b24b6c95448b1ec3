"""A run's events on their way to a client that may be slow, or gone.

The client says how much it has room for; what is sent beyond that would only pile up in the socket.
What waits here is bounded, too: then the oldest is dropped and counted, or, if the client wishes
so, the command waits. No thread: everything happens on the warden's loop.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from nacre.eventloop import Callback
from nacre.model.events import Chunk, Finished, Full, Started, Stream
from nacre.model.requests import ListenOptions

INITIAL_WINDOW: Final = 256 * 1024  # what a client has room for at first
_MAX_CHUNK: Final = 64 * 1024
_LINGER: Final = 5.0
_MAX_CHUNKS: Final = 4096


class EventStream:
    linger: float | None = _LINGER
    _run = ""
    _finished = False
    _disconnected = False  # nobody is there any more

    def __init__(
        self,
        options: ListenOptions,
        send: Callable[[Started | Chunk], None],
        *,
        on_room: Callback,
        on_delivered: Callback,
    ) -> None:
        """`room` is called when a full wire has room again, `heard` when all has been sent."""
        self._options = options
        self._send = send
        self._on_room = on_room
        self._on_delivered = on_delivered
        self._window = INITIAL_WINDOW
        self._chunks: deque[tuple[Stream, bytearray]] = deque()
        self._buffered = 0
        self._skipped: dict[Stream, int] = {}

    @property
    def full(self) -> bool:
        waits = self._options.full is Full.WAIT and not self._disconnected
        return waits and (self._buffered >= self._options.buffer or len(self._chunks) > _MAX_CHUNKS)

    def on_started(self, event: Started) -> None:
        self._run = event.run
        if not self._disconnected:
            self._send(event)

    def on_chunk(self, stream: Stream, data: bytes | bytearray, *, may_skip: bool) -> None:
        if self._disconnected:
            return
        if self._chunks and self._chunks[-1][0] is stream and len(self._chunks[-1][1]) < _MAX_CHUNK:
            self._chunks[-1][1].extend(data)
        else:
            self._chunks.append((stream, bytearray(data)))
        self._buffered += len(data)
        if may_skip or self._options.full is Full.SKIP:
            self._drop_oldest()
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
        self._chunks.clear()
        self._buffered = 0
        if was_full:
            self._on_room()
        if self._finished:
            self._on_delivered()

    def _flush(self) -> None:
        while self._chunks and self._window > 0:
            stream, data = self._chunks[0]
            piece = bytes(data[: min(_MAX_CHUNK, self._window)])
            del data[: len(piece)]
            if not data:
                self._chunks.popleft()
            self._buffered -= len(piece)
            self._window -= len(piece)
            skipped = self._skipped.pop(stream, 0)
            self._send(Chunk(run=self._run, stream=stream, data=piece, skipped=skipped))
        if self._finished and not self._chunks:
            while self._skipped:
                stream, skipped = self._skipped.popitem()
                self._send(Chunk(run=self._run, stream=stream, data=b"", skipped=skipped))
            self._on_delivered()

    def _drop_oldest(self) -> None:
        # Many tiny chunks of alternating streams cost more than their bytes.
        while self._chunks and (
            self._buffered > self._options.buffer or len(self._chunks) > _MAX_CHUNKS
        ):
            stream, data = self._chunks[0]
            excess = self._buffered - self._options.buffer
            dropped = min(len(data), excess) if len(self._chunks) <= _MAX_CHUNKS else len(data)
            del data[:dropped]
            if not data:
                self._chunks.popleft()
            self._buffered -= dropped
            self._skipped[stream] = self._skipped.get(stream, 0) + dropped
