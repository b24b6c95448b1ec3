"""What a run shall read, on its way into a pipe that may be full, or have no reader any more."""

import os
from typing import Final

from nacre.loop import Loop
from nacre.refusals import Refused, Unavailable

# What a program does not read is held for it, so much at most.
_MOST: Final = 1024 * 1024


class Feeding:
    _ending = False
    _open = True

    def __init__(self, fd: int, loop: Loop, first: bytes) -> None:
        self._fd = fd
        self._loop = loop
        self._held = bytearray(first)
        loop.watch(fd, self.close)  # a pipe that nobody can read says so
        self._pump()

    def write(self, data: bytes, *, eof: bool) -> None:
        """Raises Refused when nobody will read it."""
        if self._ending or not self._open:
            raise Refused(Unavailable(problem="its stdin is closed; nothing can be written to it"))
        if len(self._held) + len(data) > max(_MOST, len(data)):
            raise Refused(
                Unavailable(
                    problem=f"it does not read: {len(self._held)} bytes that were written before "
                    "still wait; write less, or later"
                )
            )
        self._held += data
        self._ending = eof
        self._pump()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._held.clear()

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
