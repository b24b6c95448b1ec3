"""Noticing that a run waits for input: looking again and again, while somebody wants to know.

A thread may be blocked on its input for a moment only, between two lines that it reads. So one look
is not enough: the second must find the same question, with nothing said or read in between.
"""

from collections.abc import Callable
from typing import Final

from nacre.loop import Call, Loop, Timer

_FIRST: Final = 0.1
_AGAIN: Final = 0.15  # when there seems to be a question
_SLOWEST: Final = 0.5

Question = tuple[int, int]


class Asking:
    _timer: Timer | None = None
    _pause = _FIRST
    _seen: Question | None = None

    def __init__(self, loop: Loop, look: Callable[[], Question | None], tell: Call) -> None:
        """`tell` is called once there is a question; then begin again, to hear of the next."""
        self._loop = loop
        self._question = look
        self._tell = tell

    def begin(self) -> None:
        if self._timer is None:
            self._pause, self._seen = _FIRST, None
            self._later(_FIRST)

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _later(self, pause: float) -> None:
        self._timer = self._loop.after(pause, self._look)

    def _look(self) -> None:
        question, before = self._question(), self._seen
        self._seen = question
        if question is None:
            self._pause = min(1.5 * self._pause, _SLOWEST)
            self._later(self._pause)
        elif question != before:
            self._later(_AGAIN)
        else:
            self._timer = None
            self._tell()
