"""Window: the head and the tail of an output stream that is too long to be kept completely, held in
bounded memory.

A `Window` accesses no files and decodes no bytes; the package `text` decodes the bytes that the
window has kept, once, at the end of the stream.
"""

from collections import deque
from typing import Final

from nacre.model.plan import Keep

# Maximum size in bytes of a chunk to which small writes are joined; without joining, a million
# writes of one byte would become a million objects.
_JOIN_BELOW: Final = 64 * 1024


class Window:
    def __init__(self, keep: Keep, beginning: bytearray) -> None:
        """Create a window on a stream; `beginning` is the stream so far, which includes at least
        the head.

        The new window owns the buffer `beginning`, so the caller must not change the buffer
        afterwards.
        """
        self._tail = keep.tail
        self.head = bytes(memoryview(beginning)[: keep.head])
        del beginning[: keep.head]
        # chunks of output that follow the stream's head; old chunks are dropped, the tail is kept
        self._chunks: deque[bytes | bytearray] = deque([beginning])
        self._held = len(beginning)

    def write(self, data: bytes | bytearray) -> None:
        self._held += len(data)
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, bytearray) and len(last) + len(data) <= _JOIN_BELOW:
            last += data
        else:
            self._chunks.append(bytearray(data) if len(data) < _JOIN_BELOW else bytes(data))
        # A write to the window drops only whole old chunks; the method `tail` cuts the kept bytes
        # to the exact length once, at the end of the stream.
        while self._chunks and self._held - len(self._chunks[0]) >= self._tail:
            self._held -= len(self._chunks.popleft())

    def drop_tail(self) -> None:
        """Drop the bytes after the stream's head from memory, because the spill file has these
        bytes."""
        self._chunks.clear()
        self._held = 0

    def tail_so_far(self) -> bytes:
        """Return the tail of the output so far; more output may be written to the window
        afterwards."""
        joined = b"".join(self._chunks)
        return joined[max(0, len(joined) - self._tail) :]

    def tail(self) -> bytes:
        """Return the tail of the complete output, without bytes that `drop_tail` has dropped; no
        output may be written to the window afterwards."""
        self._drop_oldest(self._held - self._tail)
        return b"".join(self._chunks)

    def _drop_oldest(self, count: int) -> None:
        """Drop the oldest `count` bytes of output from memory, whole chunks first, so that at most
        one chunk must be cut and copied."""
        while count > 0:
            chunk = self._chunks.popleft()
            self._held -= len(chunk)
            if len(chunk) > count:
                self._chunks.appendleft(chunk[count:])
                self._held += len(chunk) - count
            count -= len(chunk)
