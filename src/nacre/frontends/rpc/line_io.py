"""Lines of JSON on two descriptors: what has come, cut into lines, and what shall go out.

An inbox is pure. An outbox may be put into from any thread; whoever puts is not held up by a slow
reader, unless he waits for room.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from nacre.model.plan import KIB, MIB

MAX_LINE: Final = MIB  # bytes of a line, its end not counted
_WRITE_SIZE: Final = 4 * KIB  # a pipe that can be written at all takes so much without waiting
_MAX_QUEUED: Final = MIB  # bytes that nobody has read yet


class LineReader:
    """Bytes in, lines out. A line that is too long is None, and what follows it is whole again."""

    def __init__(self, longest: int = MAX_LINE) -> None:
        self._longest = longest
        self._held = bytearray()
        self._passing = False  # the rest of a line that was too long

    def feed(self, data: bytes) -> list[bytes | None]:
        found: list[bytes | None] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            found.append(self._line(piece))
        self._buffer_piece(rest)
        return found

    def end(self) -> list[bytes | None]:
        """The last line, which may have no end."""
        return [self._line(b"")] if self._held or self._passing else []

    def _line(self, piece: bytes) -> bytes | None:
        self._buffer_piece(piece)
        line = None if self._passing else bytes(self._held)
        self._held.clear()
        self._passing = False
        return line

    def _buffer_piece(self, piece: bytes) -> None:
        if self._passing or len(self._held) + len(piece) > self._longest:
            self._passing = True
            self._held.clear()
        else:
            self._held += piece


class LineWriter:
    """Lines to a descriptor, one after the other, whoever puts them."""

    def __init__(self, sink: int, broken: Callable[[], object] = lambda: None) -> None:
        """`broken` is called when nobody reads any more, by whichever thread notices."""
        self.problem: OSError | None = None  # nobody reads any more
        self._sink = sink
        self._broken = broken
        self._poll = select.poll()
        self._poll.register(sink, select.POLLOUT)
        self._waiting: deque[memoryview] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def write_line(self, line: bytes) -> None:
        """At once if that can be done without waiting, else by a thread of its own."""
        with self._changed:
            if self.problem is not None or self._closed:
                return
            rest = memoryview(line)
            if not self._bytes and len(line) <= _WRITE_SIZE and self._poll.poll(0):
                rest = self._write_now(rest)
            if rest:
                self._waiting.append(rest)
                self._bytes += len(rest)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="nacre-out")
                    self._thread.daemon = True
                    self._thread.start()
                self._changed.notify_all()

    def wait_for_room(self) -> None:
        """For whoever has much to say: wait until most of what was said has been read."""
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < _MAX_QUEUED or self._has_no_reader)

    def drain(self, seconds: float) -> bool:
        """Wait until all has been read. False: there was no reader, or he took nothing for so
        long."""
        with self._changed:
            while before := self._bytes:
                # Whoever is told that something happened may find that nothing has moved.
                moved = self._changed.wait_for(
                    lambda: self._bytes < before or self._has_no_reader, seconds
                )
                if not moved or self._has_no_reader:
                    break
            return not self._bytes and self.problem is None

    def close(self) -> None:
        """Say no more, not even what waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def _has_no_reader(self) -> bool:
        return self.problem is not None or self._closed

    def _write_now(self, rest: memoryview) -> memoryview:
        """What is left of it."""
        try:
            return rest[os.write(self._sink, rest) :]
        except BlockingIOError:  # our reader made it so
            return rest
        except OSError as error:
            self.problem = error
            self._broken()
            return rest[len(rest) :]

    def _run(self) -> None:
        while (rest := self._next_line()) is not None:
            while rest and not self._has_no_reader:
                self._poll.poll()
                left = self._write_now(rest)
                with self._changed:
                    self._bytes -= len(rest) - len(left)
                    self._changed.notify_all()
                rest = left

    def _next_line(self) -> memoryview | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._has_no_reader)
            return None if self._has_no_reader else self._waiting.popleft()
