"""Writer for a run's stdin, a pipe that may be full or may have lost its last reader."""

import os
from collections import deque
from collections.abc import Callable
from typing import Final

from nacre.eventloop import EventLoop
from nacre.model.refusals import AnyRefusal, Unavailable
from nacre.process.pipe_reader import count_unread
from nacre.procfs.blocked_readers import Pipe, identify_pipe

# Maximum bytes buffered for a program that does not read its stdin; a single write to an empty
# buffer may be larger.
_MAX_BUFFER: Final = 1024 * 1024
_STDIN_CLOSED: Final = Unavailable(
    problem="the stdin of the run is closed; nothing can be written to it"
)


# Callback for the result of a write to stdin: None if the data was accepted, else the refusal.
OnWritten = Callable[[AnyRefusal | None], None]


class StdinWriter:
    def __init__(self, fd: int, loop: EventLoop, first: bytes) -> None:
        self.written = 0
        self.lines = first.count(b"\n")  # number of lines written so far
        self._eof = False
        self._open = True
        self._fd = fd
        self._loop = loop
        self._buffer = bytearray(first)
        # Writes to stdin that wait for room in the buffer.
        self._waiting: deque[tuple[bytes, bool, OnWritten]] = deque()
        # Epoll reports an event on the write end of stdin when the last reader has closed the pipe.
        loop.watch(fd, self.close)
        self._flush()

    @property
    def drained_pipe(self) -> Pipe | None:
        """Return the stdin pipe if the program has read everything written so far; return None
        while unread bytes remain, and after the end of the input."""
        if not self._open or self._eof or self._buffer or count_unread(self._fd):
            return None
        return identify_pipe(self._fd)

    def write(self, data: bytes, *, eof: bool, wait_for_room: bool, then: OnWritten) -> None:
        """Write `data` to the run's stdin, then close stdin if `eof` is True. Data that does not
        fit the stdin buffer waits for room if `wait_for_room` is True, else it is refused."""
        if self._eof or not self._open:
            then(_STDIN_CLOSED)
        elif not self._fits(data) and wait_for_room:
            self._waiting.append((data, eof, then))
        elif not self._fits(data):
            problem = (
                f"it does not read: {len(self._buffer)} bytes that were written before still wait; "
                "write less, or later"
            )
            then(Unavailable(problem=problem))
        else:
            self._accept(data, eof=eof, then=then)

    def _fits(self, data: bytes) -> bool:
        return not self._waiting and (
            not self._buffer or len(self._buffer) + len(data) <= _MAX_BUFFER
        )

    def _accept(self, data: bytes, *, eof: bool, then: OnWritten) -> None:
        self._buffer += data
        self.written += len(data)
        self.lines += data.count(b"\n")
        self._eof = eof
        then(None)
        self._flush()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.unwatch(self._fd)
            os.close(self._fd)
            self._buffer.clear()
            while self._waiting:
                self._waiting.popleft()[2](_STDIN_CLOSED)

    def _flush(self) -> None:
        try:
            while self._buffer:
                del self._buffer[: os.write(self._fd, self._buffer[:65536])]
        except BlockingIOError:
            self._loop.watch_writable(self._fd, self._flush)
            return
        except OSError:  # the last reader of stdin has closed the pipe
            self.close()
            return
        self._loop.unwatch_writable(self._fd)
        if self._eof:
            self.close()
        elif self._waiting:
            data, eof, then = self._waiting.popleft()
            self._accept(data, eof=eof, then=then)
