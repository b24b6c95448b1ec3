"""What a run shall read, on its way into a pipe that may be full, or have no reader any more."""

import os
from collections import deque
from collections.abc import Callable
from typing import Final

from nacre.loop import Loop
from nacre.proc.blocked import Pipe, pipe_of
from nacre.process.pipes import unread
from nacre.refusals import AnyRefusal, Unavailable

# What a program does not read is held for it, so much at most.
_MOST: Final = 1024 * 1024
_CLOSED: Final = Unavailable(problem="its stdin is closed; nothing can be written to it")


Then = Callable[[AnyRefusal | None], None]  # taken, or why not


class Feeding:
    written = 0
    _ending = False
    _open = True

    def __init__(self, fd: int, loop: Loop, first: bytes) -> None:
        self._fd = fd
        self._loop = loop
        self._held = bytearray(first)
        self._waiting: deque[tuple[bytes, bool, Then]] = deque()  # until there is room
        loop.watch(fd, self.close)  # a pipe that nobody can read says so
        self._pump()

    @property
    def pipe(self) -> Pipe | None:
        """The one that may be read to the end of what was written; None: there is more to read, or
        there will never be."""
        if not self._open or self._ending or self._held or unread(self._fd):
            return None
        return pipe_of(self._fd)

    def write(self, data: bytes, *, eof: bool, waits: bool, then: Then) -> None:
        """`waits`: until there is room for it, if the program does not read."""
        if self._ending or not self._open:
            then(_CLOSED)
        elif not self._fits(data) and waits:
            self._waiting.append((data, eof, then))
        elif not self._fits(data):
            problem = (
                f"it does not read: {len(self._held)} bytes that were written before still wait; "
                "write less, or later"
            )
            then(Unavailable(problem=problem))
        else:
            self._take(data, eof=eof, then=then)

    def _fits(self, data: bytes) -> bool:
        return not self._waiting and (not self._held or len(self._held) + len(data) <= _MOST)

    def _take(self, data: bytes, *, eof: bool, then: Then) -> None:
        self._held += data
        self.written += len(data)
        self._ending = eof
        then(None)
        self._pump()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._held.clear()
            while self._waiting:
                self._waiting.popleft()[2](_CLOSED)

    def _pump(self) -> None:
        try:
            while self._held:
                del self._held[: os.write(self._fd, self._held[:65536])]
        except BlockingIOError:
            self._loop.await_room(self._fd, self._pump)
            return
        except OSError:  # whoever could read it is gone
            self.close()
            return
        self._loop.enough_room(self._fd)
        if self._ending:
            self.close()
        elif self._waiting:
            data, eof, then = self._waiting.popleft()
            self._take(data, eof=eof, then=then)
