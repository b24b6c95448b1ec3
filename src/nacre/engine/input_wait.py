"""Detecting, by polling, that a run waits for input on its stdin.

One poll does not prove that a run waits for input, because a program may block in read(2) only for
a moment between two lines. A run counts as waiting for input only if a second poll finds it still
blocked, with no output and no input between the two polls.
"""

from collections.abc import Callable
from typing import Final

from nacre.eventloop import Callback, EventLoop, Timer

_FIRST_INTERVAL: Final = 0.1  # seconds until the first check whether the run waits for input
# Seconds between a check that finds the run waiting for input and the check that confirms it.
_CONFIRM_INTERVAL: Final = 0.15
_MAX_INTERVAL: Final = 0.5  # maximum seconds between two checks whether the run waits for input

# Two byte counts of a run that waits for input: output read and stdin written; see `Run.question`.
Question = tuple[int, int]


class InputWaitDetector:
    def __init__(
        self, loop: EventLoop, find_question: Callable[[], Question | None], on_question: Callback
    ) -> None:
        """The callback `on_question` is called once, when the run is found to wait for input.
        Polling stops when `on_question` is called; call `InputWaitDetector.begin` to detect the
        next wait for input."""
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
