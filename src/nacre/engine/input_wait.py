"""Detecting by polling that a run waits for input.

A thread may block on its input only for a moment, between two lines that it reads. So one poll
does not prove an input wait. A second poll must find the same state, with no output and no input in
between.
"""

from collections.abc import Callable
from typing import Final

from nacre.eventloop import Callback, EventLoop, Timer

_FIRST_INTERVAL: Final = 0.1  # seconds until the first poll
_CONFIRM_INTERVAL: Final = 0.15  # seconds from a poll that found an input wait to the next poll
_MAX_INTERVAL: Final = 0.5  # maximum seconds between two polls

Question = tuple[int, int]  # output bytes and stdin bytes so far; see `Run.question`


class InputWaitDetector:
    def __init__(
        self, loop: EventLoop, find_question: Callable[[], Question | None], on_question: Callback
    ) -> None:
        """`on_question` is called once, when the run waits for input. After that, `begin` must be
        called again to detect the next input wait."""
        self._timer: Timer | None = None
        self._interval = _FIRST_INTERVAL
        self._seen: Question | None = None
        self._loop = loop
        self._find_question = find_question
        self._on_question = on_question

    def begin(self) -> None:
        if self._timer is None:
            self._interval, self._seen = _FIRST_INTERVAL, None
            self._schedule(_FIRST_INTERVAL)

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _schedule(self, pause: float) -> None:
        self._timer = self._loop.call_later(pause, self._poll)

    def _poll(self) -> None:
        question, before = self._find_question(), self._seen
        self._seen = question
        if question is None:
            self._interval = min(1.5 * self._interval, _MAX_INTERVAL)
            self._schedule(self._interval)
        elif question != before:
            self._schedule(_CONFIRM_INTERVAL)
        else:
            self._timer = None
            self._on_question()
