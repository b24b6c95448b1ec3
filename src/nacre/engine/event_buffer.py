"""Bounded buffer that holds a run's output until a slow listener takes it.

The event buffer joins small pieces of output into larger chunks, and counts the bytes that the
listener does not get. The event buffer has two users: the thread of a listener in this process, and
the event stream from the warden (nacre's daemon) to a client. The event buffer has no lock and no
clock: its owner decides when to drop and when to deliver output.
"""

from collections import deque
from typing import Final

from nacre.model.events import Chunk, Stream

# Maximum number of chunks in an event buffer, besides its byte limit, because many tiny chunks of
# alternating streams need more memory than the sum of their bytes.
MAX_CHUNKS: Final = 4096


class EventBuffer:
    def __init__(self, limit: int, max_chunk: int | None = None) -> None:
        """`limit` is the number of bytes at which the event buffer is full. New output is appended
        to the last buffered chunk of the same stream, unless that chunk has reached `max_chunk`
        bytes."""
        self._limit = limit
        self._max_chunk = max_chunk
        self._chunks: deque[tuple[Stream, bytearray]] = deque()
        self._skipped: dict[Stream, int] = {}
        self.size = 0  # number of output bytes in the event buffer

    def __bool__(self) -> bool:
        """Return whether the event buffer holds output bytes; counts of skipped bytes are not
        output."""
        return bool(self._chunks)

    @property
    def full(self) -> bool:
        return self.size >= self._limit or len(self._chunks) > MAX_CHUNKS

    def append(self, stream: Stream, data: bytes | bytearray) -> None:
        last = self._chunks[-1] if self._chunks else None
        if last is not None and last[0] is stream and not self._is_long(last[1]):
            last[1].extend(data)
        else:
            self._chunks.append((stream, bytearray(data)))
        self.size += len(data)

    def _is_long(self, data: bytearray) -> bool:
        return self._max_chunk is not None and len(data) >= self._max_chunk

    def add_skipped(self, stream: Stream, count: int) -> None:
        self._skipped[stream] = self._skipped.get(stream, 0) + count

    def drop_oldest(self) -> None:
        """Drop the oldest output until the event buffer is within its limits, and count the dropped
        bytes as skipped."""
        while self._chunks and (self.size > self._limit or len(self._chunks) > MAX_CHUNKS):
            stream, data = self._chunks[0]
            excess = self.size - self._limit
            dropped = min(len(data), excess) if len(self._chunks) <= MAX_CHUNKS else len(data)
            del data[:dropped]
            if not data:
                self._chunks.popleft()
            self.size -= dropped
            self.add_skipped(stream, dropped)

    def pop(self, run: str, max_bytes: int | None = None) -> Chunk:
        """Remove and return the oldest chunk of the event buffer, or only its first `max_bytes`
        bytes. The returned chunk also says how many bytes of its stream were skipped before it."""
        stream, data = self._chunks[0]
        piece = bytes(data if max_bytes is None else data[:max_bytes])
        if len(piece) == len(data):
            self._chunks.popleft()
        else:
            del data[: len(piece)]
        self.size -= len(piece)
        skipped = self._skipped.pop(stream, 0)
        return Chunk(run=run, stream=stream, data=piece, skipped=skipped)

    def pop_skipped(self, run: str) -> Chunk | None:
        """Return an empty chunk whose field `skipped` is the number of bytes skipped at the end of
        a stream; return None if all skipped bytes are reported. The owner of the event buffer calls
        `pop_skipped` at the end of the run."""
        if not self._skipped:
            return None
        stream, skipped = self._skipped.popitem()
        return Chunk(run=run, stream=stream, data=b"", skipped=skipped)

    def clear(self) -> None:
        self._chunks.clear()
        self.size = 0
