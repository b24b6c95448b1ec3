"""Lines on two descriptors: `LineReader` splits input into lines, `LineWriter` writes lines.

`LineReader` does no I/O: it gets the input bytes from its caller. Any thread may call
`LineWriter.write_line`, which never waits for a slow client. A thread that calls
`LineWriter.wait_for_room` blocks while too much output waits for a slow client.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from nacre.model.plan import KIB, MIB

MAX_LINE: Final = MIB  # maximum bytes of an input line, without its newline
# Bytes that a pipe accepts without blocking when poll(2) says it is writable.
_WRITE_SIZE: Final = 4 * KIB
_MAX_QUEUED: Final = MIB  # number of queued output bytes at which `wait_for_room` blocks


class LineReader:
    """Splitter of input bytes into lines; returns None for a line that is too long, and continues
    with the next line."""

    def __init__(self, longest: int = MAX_LINE) -> None:
        self._longest = longest
        self._held = bytearray()
        self._passing = False  # whether the reader is skipping the rest of a line that is too long

    def feed(self, data: bytes) -> list[bytes | None]:
        found: list[bytes | None] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            found.append(self._line(piece))
        self._buffer_piece(rest)
        return found

    def end(self) -> list[bytes | None]:
        """Return the last line of the input if it has no newline: a list with one line, or an empty
        list."""
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
    """Thread-safe writer of complete lines to a descriptor."""

    def __init__(self, sink: int, broken: Callable[[], object] = lambda: None) -> None:
        """`LineWriter` writes its lines to the descriptor `sink`, and calls `broken` when a write
        fails, in the thread that tried to write."""
        # Error of a failed write; None while writing to the client works.
        self.problem: OSError | None = None
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
        """Write a line at once if the write does not block; otherwise queue the line for the writer
        thread."""
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
        """Block until fewer than `_MAX_QUEUED` bytes are queued; threads that write much output
        call this method."""
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < _MAX_QUEUED or self._has_no_reader)

    def drain(self, seconds: float) -> bool:
        """Wait until all queued bytes are written, and return whether all of them were written.

        `drain` stops waiting when a write fails, or when the client has read nothing for `seconds`
        seconds.
        """
        with self._changed:
            while before := self._bytes:
                # `wait_for` checks the number of queued bytes, because the condition variable may
                # also be notified when no byte was written.
                moved = self._changed.wait_for(
                    lambda: self._bytes < before or self._has_no_reader, seconds
                )
                if not moved or self._has_no_reader:
                    break
            return not self._bytes and self.problem is None

    def close(self) -> None:
        """Stop writing and drop the queued lines."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def _has_no_reader(self) -> bool:
        return self.problem is not None or self._closed

    def _write_now(self, rest: memoryview) -> memoryview:
        """Call write(2) once and return the bytes that are still to be written."""
        try:
            return rest[os.write(self._sink, rest) :]
        except BlockingIOError:  # the client has set its pipe to non-blocking, and it is full
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
