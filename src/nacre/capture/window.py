"""Keep the first and last bytes of a stream of any length, in bounded memory.

Everything is kept up to `whole`; past that, the first `head` and the last `tail`.
Pure: no files, no decoding. Bytes become text once, at the end, in `text`.
"""

from collections import deque
from typing import Final

from nacre.plan import Keep

# A million writes of one byte must not become a million objects.
_SMALL: Final = 64 * 1024


class Window:
    size = 0
    _head: bytes | None = None  # cut off once there is more than `whole`
    _held = 0  # bytes in _chunks

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._all = bytearray()  # until there is more than `whole`
        self._chunks: deque[bytes | bytearray] = deque()  # then: what the tail is cut from

    def take(self, data: bytes | bytearray) -> None:
        self.size += len(data)
        if self._head is None:
            self._all += data
            if self.size > self._keep.whole:
                self._cut_head()
            return
        self._append(data)
        # Whole chunks only: the exact cut is made once, at the end.
        while self._chunks and self._held - len(self._chunks[0]) >= self._keep.tail:
            self._held -= len(self._chunks.popleft())

    def everything(self) -> bytearray:
        """All bytes so far, to be looked at; only before the overflow."""
        assert self._head is None
        return self._all

    def parts(self) -> tuple[bytes, bytes]:
        """Head and tail; all of it in the head when nothing is missing. Ends the window."""
        if self._head is None:
            return bytes(self._all), b""
        self._drop(self._held - self._keep.tail)
        return self._head, b"".join(self._chunks)

    def drop_tail(self) -> None:
        """Somebody else has what came after the head."""
        self._chunks.clear()
        self._held = 0

    def _append(self, data: bytes | bytearray) -> None:
        self._held += len(data)
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, bytearray) and len(last) + len(data) <= _SMALL:
            last += data
        else:
            self._chunks.append(bytearray(data) if len(data) < _SMALL else bytes(data))

    def _cut_head(self) -> None:
        rest = self._all
        self._head = bytes(memoryview(rest)[: self._keep.head])
        del rest[: self._keep.head]
        self._chunks.append(rest)
        self._held = len(rest)
        self._all = bytearray()

    def _drop(self, count: int) -> None:
        """Forget the oldest bytes. One chunk at a time: nothing is ever held twice."""
        while count > 0:
            chunk = self._chunks.popleft()
            self._held -= len(chunk)
            if len(chunk) > count:
                self._chunks.appendleft(chunk[count:])
                self._held += len(chunk) - count
            count -= len(chunk)
