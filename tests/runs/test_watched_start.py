"""Tests of a start request with conditions, on an event loop without a warden."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nacre.eventloop import EventLoop, now
from nacre.model.refusals import CalledOff
from nacre.model.requests import AlreadyStarted, Rejected, Response
from nacre.model.wait_conditions import ConditionMet, OutputIdle
from nacre.runs import watched_start
from nacre.runs.sequence import WaitCancelled, after
from nacre.runs.watched_start import WatchedStart


class StartOperation:
    """A start operation whose warden reports, after a moment, that an earlier call has the run."""

    name = "r1"

    def __init__(self, loop: EventLoop, deliver: Any) -> None:
        self.cancels = 0
        self.responded = False
        self._loop = loop
        self._deliver = deliver

    def start(self) -> None:
        self._loop.call_later(0.01, self._respond)

    def _respond(self) -> None:
        self.responded = True
        self._deliver(AlreadyStarted(run="r1"))

    def cancel(self, number: int = 15) -> None:
        del number
        self.cancels += 1

    def signal(self, number: int) -> None: ...

    def resume(self) -> None: ...

    def detach_now(self) -> None: ...


def test_a_cancel_while_the_conditions_are_cleaned_up_ends_the_wait_for_an_earlier_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check of a URL takes up to two seconds to end; a cancel in this time must not be lost."""

    async def check_with_slow_cleanup(*args: Any) -> ConditionMet:
        del args
        try:
            await after(None)
        except WaitCancelled:
            await after(0.2)
            raise
        raise AssertionError

    monkeypatch.setattr(watched_start, "wait_until_met", check_with_slow_cleanup)
    loop, answers, operations = EventLoop(), list[Response](), list[StartOperation]()

    def make(deliver: Any) -> StartOperation:
        operations.append(StartOperation(loop, deliver))
        return operations[0]

    request = SimpleNamespace(until=(OutputIdle(1.0),), number=1, workspace=b"/w")
    context = SimpleNamespace(loop=loop)
    start = WatchedStart(cast("Any", request), cast("Any", context), answers.append, make)
    start.start()
    while not operations[0].responded:
        loop.step(0.1)
    start.cancel()
    deadline = now() + 3
    while not answers and now() < deadline:
        loop.step(0.1)
    loop.close()
    assert answers == [Rejected(refusal=CalledOff())]
    assert operations[0].cancels == 0  # the run belongs to the earlier call
