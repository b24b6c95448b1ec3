"""The first and last bytes of a stream that is too long to be kept whole, in bounded memory.

Pure: no files, no decoding. Bytes become text once, at the end, in `text`.
"""

from collections import deque
from typing import Final

from nacre.model.plan import Keep

# A million writes of one byte must not become a million objects.
_JOIN_BELOW: Final = 64 * 1024


class Window:
    def __init__(self, keep: Keep, beginning: bytearray) -> None:
        """`beginning` is what there is so far, at least the head; it is ours from now on."""
        self._tail = keep.tail
        self.head = bytes(memoryview(beginning)[: keep.head])
        del beginning[: keep.head]
        self._chunks: deque[bytes | bytearray] = deque([beginning])  # the tail is cut from these
        self._held = len(beginning)

    def write(self, data: bytes | bytearray) -> None:
        self._held += len(data)
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, bytearray) and len(last) + len(data) <= _JOIN_BELOW:
            last += data
        else:
            self._chunks.append(bytearray(data) if len(data) < _JOIN_BELOW else bytes(data))
        # Whole chunks only: the exact cut is made once, at the end.
        while self._chunks and self._held - len(self._chunks[0]) >= self._tail:
            self._held -= len(self._chunks.popleft())

    def drop_tail(self) -> None:
        """Somebody else has what came after the head."""
        self._chunks.clear()
        self._held = 0

    def tail_so_far(self) -> bytes:
        """The tail as it is now; the window goes on."""
        joined = b"".join(self._chunks)
        return joined[max(0, len(joined) - self._tail) :]

    def tail(self) -> bytes:
        """As much of it as we have. Ends the window."""
        self._drop_oldest(self._held - self._tail)
        return b"".join(self._chunks)

    def _drop_oldest(self, count: int) -> None:
        """Forget the oldest bytes. One chunk at a time: nothing is ever held twice."""
        while count > 0:
            chunk = self._chunks.popleft()
            self._held -= len(chunk)
            if len(chunk) > count:
                self._chunks.appendleft(chunk[count:])
                self._held += len(chunk) - count
            count -= len(chunk)
