"""Sequences of waits on an event loop, without processes."""

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.eventloop import EventLoop, now
from nacre.runs.sequence import (
    Answer,
    SequenceOperation,
    Steps,
    Task,
    TaskGroup,
    WaitCancelled,
    after,
    all_of,
    first_of,
)


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.close()


class Host:
    """Starts sequences on one loop, and drives it until they have answered."""

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.answers: list[Any] = []

    def start(self, steps: Steps[Any]) -> SequenceOperation[Any]:
        sequence = SequenceOperation(steps, self.loop, self.answers.append, cancelled="cancelled")
        sequence.start()
        return sequence

    def run(self, steps: Steps[Any]) -> Any:
        self.start(steps)
        self.drive()
        return self.answers.pop()

    def drive(self) -> None:
        deadline = now() + 10
        while not self.answers:
            assert now() < deadline
            self.loop.step(0.1)


@pytest.fixture
def host(loop: EventLoop) -> Host:
    return Host(loop)


class Log(list[str]):
    """What coroutines did, in order."""

    async def step(self, name: str, seconds: float | None, cleanup: float | None = None) -> str:
        self.append(f"{name} begins")
        try:
            await after(seconds)
        except WaitCancelled:
            self.append(f"{name} is cancelled")
            if cleanup is not None:
                await after(cleanup)
                self.append(f"{name} is cleaned up")
            raise
        self.append(f"{name} is done")
        return name


def test_the_first_wins_and_the_others_are_cancelled_and_cleaned_up(host: Host) -> None:
    log = Log()
    steps = first_of(log.step("slow", None, cleanup=0.02), log.step("fast", 0.0))
    assert host.run(steps) == "fast"
    assert log == [
        "slow begins",
        "fast begins",
        "fast is done",
        "slow is cancelled",
        "slow is cleaned up",
    ]


def test_after_an_immediate_result_the_next_coroutine_does_not_begin(host: Host) -> None:
    log = Log()

    async def known() -> str:
        return "known"

    assert host.run(first_of(known(), log.step("second", 0.0))) == "known"
    assert log == []


def test_all_results_come_in_the_order_of_the_coroutines(host: Host) -> None:
    log = Log()
    assert host.run(all_of(log.step("a", 0.02), log.step("b", 0.0))) == ["a", "b"]
    assert host.run(all_of()) == []


def test_the_first_error_cancels_the_others_and_reaches_the_caller(host: Host) -> None:
    log = Log()

    async def fail() -> str:
        await after(0.0)
        raise LookupError("broken")

    async def steps() -> str:
        with pytest.raises(LookupError, match="broken"):
            await all_of(log.step("other", None, cleanup=0.0), fail())
        return "went on"

    assert host.run(steps()) == "went on"
    assert log == ["other begins", "other is cancelled", "other is cleaned up"]


def test_a_cancelled_sequence_answers_after_its_cleanup(host: Host) -> None:
    log = Log()
    sequence = host.start(first_of(log.step("a", None, cleanup=0.02), log.step("b", None)))
    sequence.cancel()
    assert host.answers == []
    sequence.cancel()  # the second call changes nothing
    host.drive()
    assert host.answers == ["cancelled"]
    assert log[2:] == ["a is cancelled", "b is cancelled", "a is cleaned up"]


def test_a_sequence_that_is_cancelled_before_its_start_answers_at_once(loop: EventLoop) -> None:
    log, answers = Log(), list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps = log.step("a", None)
        SequenceOperation(steps, loop, answers.append, cancelled="cancelled").cancel()
        del steps
        gc.collect()
    assert (answers, log) == (["cancelled"], [])


def test_a_cancel_during_the_cleanup_of_the_losers_still_waits_for_them(host: Host) -> None:
    log = Log()
    sequence = host.start(first_of(log.step("slow", None, cleanup=0.05), log.step("fast", 0.0)))
    while "fast is done" not in log:
        host.loop.step(0.1)
    sequence.cancel()
    host.drive()
    assert log[-1] == "slow is cleaned up"


def test_a_coroutine_that_is_cancelled_while_it_runs_stops_at_its_next_wait(host: Host) -> None:
    """The failure of one request can end another one, on the same connection, in the same call."""
    log, shared = Log(), Answer[str]()

    async def other() -> str:
        return await shared

    async def running() -> str:
        await after(0.0)
        shared.deliver("other")  # `first_of` cancels this coroutine before `deliver` returns
        return await log.step("next", 0.0, cleanup=0.0)

    assert host.run(first_of(other(), running())) == "other"
    assert log == ["next begins", "next is cancelled", "next is cleaned up"]


def test_an_answer_may_be_delivered_before_it_is_awaited(host: Host) -> None:
    async def steps() -> list[int]:
        early: Answer[int] = Answer()
        early.deliver(1)
        late: Answer[int] = Answer()
        host.loop.call_later(0.0, lambda: late.deliver(2))
        return [await early, await late]

    assert host.run(steps()) == [1, 2]


def test_an_interrupt_inside_a_coroutine_is_raised_after_the_cleanup(host: Host) -> None:
    """Python raises KeyboardInterrupt between any two bytecodes of the driving thread."""
    log = Log()

    async def interrupted() -> str:
        await after(0.0)
        raise KeyboardInterrupt

    host.start(first_of(log.step("other", None, cleanup=0.02), interrupted()))
    with pytest.raises(KeyboardInterrupt):
        host.drive()
    assert host.answers == ["cancelled"]
    assert log[-1] == "other is cleaned up"


def test_an_interrupt_in_the_cleanup_of_a_loser_is_raised_and_not_lost(host: Host) -> None:
    async def interrupted_in_cleanup() -> str:
        try:
            await after(None)
        except WaitCancelled:
            raise KeyboardInterrupt from None
        return ""

    log = Log()
    host.start(first_of(interrupted_in_cleanup(), log.step("fast", 0.0)))
    with pytest.raises(KeyboardInterrupt):
        host.drive()
    assert host.answers == ["cancelled"]


@pytest.mark.parametrize("function", ["_advance", "_finish", "_on_done", "_on_task_done", "_wake"])
def test_an_interrupt_at_any_entry_of_the_driver_does_not_lose_the_sequence(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interrupt, the supervisor calls `resume`, and the ticket calls `cancel`."""
    for number in range(1, 12):
        loop = EventLoop()
        host, log = Host(loop), Log()

        async def steps(log: Log) -> str:
            group = first_of(log.step("slow", None, cleanup=0.0), log.step("fast", 0.0))
            return (await all_of(group))[0]

        sequence = SequenceOperation(
            steps(log),
            loop,
            host.answers.append,
            cancelled="cancelled",
        )
        with monkeypatch.context() as patch:
            interrupt_call(patch, function, number)
            sequence_starts = True
            deadline = now() + 5
            while not host.answers and now() < deadline:
                try:
                    if sequence_starts:
                        sequence_starts = False
                        sequence.start()
                    loop.step(0.05)
                except KeyboardInterrupt:
                    sequence.resume()
                    sequence.cancel()
        loop.close()
        assert len(host.answers) == 1, number
        assert log.count("slow begins") == log.count("slow is cleaned up"), number


def interrupt_call(patch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Make the call with this number, of the driver's functions with this name, raise
    KeyboardInterrupt at its entry."""
    calls = 0
    for kind in (Task, TaskGroup, SequenceOperation):
        original = getattr(kind, name, None)
        if original is None:
            continue

        def interrupted(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                raise KeyboardInterrupt
            return _original(*args, **kwargs)

        patch.setattr(kind, name, interrupted)


def test_a_sequence_that_is_dropped_unfinished_reports_nothing(
    host: Host, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log()
    host.start(first_of(log.step("a", None, cleanup=0.0), log.step("b", None)))
    host.loop.clear_timers()
    gc.collect()
    assert capfd.readouterr().err == ""
    assert host.answers == []


def test_a_deep_nesting_finishes_at_its_first_leaf(host: Host) -> None:
    async def nested(depth: int) -> int:
        if not depth:
            await after(0.0)
            return 0
        return 1 + await first_of(nested(depth - 1), after_forever())

    async def after_forever() -> int:
        await after(None)
        return -1

    assert host.run(nested(40)) == 40


Tree = Any
LEAVES = st.integers(0, 4)
TREES = st.recursive(
    LEAVES,
    lambda below: st.tuples(st.sampled_from(["first", "all"]), st.lists(below, min_size=1)),
    max_leaves=12,
)


@given(tree=TREES, cancel_after=st.none() | st.integers(0, 3))
def test_every_coroutine_that_begins_also_finishes(tree: Tree, cancel_after: int | None) -> None:
    """Whatever the shape of the waits, nothing is left when the sequence has answered."""
    loop = EventLoop()
    host, open_steps = Host(loop), 0

    async def build(tree: Tree) -> int:
        nonlocal open_steps
        open_steps += 1
        try:
            if isinstance(tree, int):
                try:
                    await after(tree / 1000)
                except WaitCancelled:
                    await after(0.001)
                    raise
                return tree
            kind, below = tree
            steps = [build(each) for each in below]
            return await first_of(*steps) if kind == "first" else max(await all_of(*steps))
        finally:
            open_steps -= 1

    sequence = host.start(build(tree))
    if cancel_after is not None:
        loop.call_later(cancel_after / 1000, sequence.cancel)
    host.drive()
    loop.close()
    assert open_steps == 0
    assert len(host.answers) == 1
