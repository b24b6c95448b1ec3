"""A run's events on their way to a client that may be slow, or gone.

The client says how much it has room for; what is sent beyond that would only pile up in the socket.
What waits here is bounded, too: then the oldest is dropped and counted, or, if the client wishes
so, the command waits. No thread: everything happens on the warden's loop.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from nacre.asks import Wishes
from nacre.events import Chunk, Finished, Full, Started, Stream
from nacre.loop import Call

WINDOW: Final = 256 * 1024  # what a client has room for at first
_PIECE: Final = 64 * 1024
_LINGER: Final = 5.0
_CHUNKS: Final = 4096


class Wire:
    linger: float | None = _LINGER
    _run = ""
    _finished = False
    _cut = False  # nobody is there any more

    def __init__(
        self, wishes: Wishes, send: Callable[[Started | Chunk], None], *, room: Call, heard: Call
    ) -> None:
        """`room` is called when a full wire has room again, `heard` when all has been sent."""
        self._wishes = wishes
        self._send = send
        self._room = room
        self._heard = heard
        self._window = WINDOW
        self._held: deque[tuple[Stream, bytearray]] = deque()
        self._size = 0
        self._skipped: dict[Stream, int] = {}

    @property
    def full(self) -> bool:
        waits = self._wishes.full is Full.WAIT and not self._cut
        return waits and (self._size >= self._wishes.buffer or len(self._held) > _CHUNKS)

    def start(self, event: Started) -> None:
        self._run = event.run
        if not self._cut:
            self._send(event)

    def chunk(self, stream: Stream, data: bytes | bytearray, *, may_skip: bool) -> None:
        if self._cut:
            return
        if self._held and self._held[-1][0] is stream and len(self._held[-1][1]) < _PIECE:
            self._held[-1][1].extend(data)
        else:
            self._held.append((stream, bytearray(data)))
        self._size += len(data)
        if may_skip or self._wishes.full is Full.SKIP:
            self._skip()
        self._pump()

    def finish(self, event: Finished) -> None:
        del event  # the answer says it
        self._finished = True
        self._pump()

    def join(self) -> None:
        """There is no thread to be waited for."""

    def more(self, count: int) -> None:
        """The client has heard so many bytes."""
        was_full = self.full
        self._window += count
        self._pump()
        if was_full and not self.full:
            self._room()

    def cut(self) -> None:
        """The client is gone; the command goes on."""
        was_full = self.full
        self._cut = True
        self._held.clear()
        self._size = 0
        if was_full:
            self._room()
        if self._finished:
            self._heard()

    def _pump(self) -> None:
        while self._held and self._window > 0:
            stream, data = self._held[0]
            piece = bytes(data[: min(_PIECE, self._window)])
            del data[: len(piece)]
            if not data:
                self._held.popleft()
            self._size -= len(piece)
            self._window -= len(piece)
            skipped = self._skipped.pop(stream, 0)
            self._send(Chunk(run=self._run, stream=stream, data=piece, skipped=skipped))
        if self._finished and not self._held:
            while self._skipped:
                stream, skipped = self._skipped.popitem()
                self._send(Chunk(run=self._run, stream=stream, data=b"", skipped=skipped))
            self._heard()

    def _skip(self) -> None:
        # Many tiny chunks of alternating streams cost more than their bytes.
        while self._held and (self._size > self._wishes.buffer or len(self._held) > _CHUNKS):
            stream, data = self._held[0]
            excess = self._size - self._wishes.buffer
            dropped = min(len(data), excess) if len(self._held) <= _CHUNKS else len(data)
            del data[:dropped]
            if not data:
                self._held.popleft()
            self._size -= dropped
            self._skipped[stream] = self._skipped.get(stream, 0) + dropped
