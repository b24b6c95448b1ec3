"""Window: head and tail of a stream that is too long to be kept completely, in bounded memory.

This module accesses no files and decodes no bytes. The package `text` decodes the bytes once, at
the end.
"""

from collections import deque
from typing import Final

from nacre.model.plan import Keep

# Small writes are joined to chunks of at most this size in bytes. Otherwise a million writes of one
# byte would become a million objects.
_JOIN_BELOW: Final = 64 * 1024


class Window:
    def __init__(self, keep: Keep, beginning: bytearray) -> None:
        """Take over `beginning`: the stream so far, which includes at least the head.

        The caller must not change `beginning` afterwards.
        """
        self._tail = keep.tail
        self.head = bytes(memoryview(beginning)[: keep.head])
        del beginning[: keep.head]
        self._chunks: deque[bytes | bytearray] = deque([beginning])  # bytes that contain the tail
        self._held = len(beginning)

    def write(self, data: bytes | bytearray) -> None:
        self._held += len(data)
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, bytearray) and len(last) + len(data) <= _JOIN_BELOW:
            last += data
        else:
            self._chunks.append(bytearray(data) if len(data) < _JOIN_BELOW else bytes(data))
        # Only whole chunks are dropped here; `tail` makes the exact cut once, at the end.
        while self._chunks and self._held - len(self._chunks[0]) >= self._tail:
            self._held -= len(self._chunks.popleft())

    def drop_tail(self) -> None:
        """Drop the bytes after the head, because the spill file has them."""
        self._chunks.clear()
        self._held = 0

    def tail_so_far(self) -> bytes:
        """Return the tail of the stream so far; the window still accepts writes."""
        joined = b"".join(self._chunks)
        return joined[max(0, len(joined) - self._tail) :]

    def tail(self) -> bytes:
        """Return the final tail, as far as the window has it; no writes may follow."""
        self._drop_oldest(self._held - self._tail)
        return b"".join(self._chunks)

    def _drop_oldest(self, count: int) -> None:
        """Drop the oldest bytes, one chunk at a time, so that memory never holds a byte twice."""
        while count > 0:
            chunk = self._chunks.popleft()
            self._held -= len(chunk)
            if len(chunk) > count:
                self._chunks.appendleft(chunk[count:])
                self._held += len(chunk) - count
            count -= len(chunk)
