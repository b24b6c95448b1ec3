"""Tests of the event loop: descriptors, timers, and callbacks posted by other threads."""

import os
import threading
import time

from nacre.eventloop import EventLoop


def test_readiness_is_for_the_descriptor_that_was_watched_and_not_for_its_number() -> None:
    """A descriptor number that is closed and reused within one step must not inherit an event."""
    loop = EventLoop()
    pairs = [os.pipe(), os.pipe()]
    spurious: list[int] = []
    fresh: list[tuple[int, int]] = []

    def replace_the_other(mine: int, other: int) -> None:
        for fd in (mine, other):
            loop.unwatch(fd)
        os.close(other)
        silent = os.pipe()
        fresh.append(silent)
        assert silent[0] == other  # the kernel assigns the lowest free number
        loop.watch(silent[0], lambda: spurious.append(silent[0]))

    (first, first_end), (second, second_end) = pairs
    loop.watch(first, lambda: replace_the_other(first, second))
    loop.watch(second, lambda: replace_the_other(second, first))
    os.write(first_end, b"x")
    os.write(second_end, b"x")
    loop.step(1)
    assert len(fresh) == 1
    assert spurious == []
    loop.close()
    for fd in (*fresh[0], first_end, second_end, first if fresh[0][0] == second else second):
        os.close(fd)


def test_timers_are_served_in_order_and_cancelled_ones_are_not() -> None:
    loop = EventLoop()
    served: list[str] = []
    loop.call_later(0.02, lambda: served.append("second"))
    loop.call_later(0.01, lambda: served.append("first"))
    loop.call_later(0.015, lambda: served.append("never")).cancel()
    while len(served) < 2:
        loop.step()
    assert served == ["first", "second"]
    assert loop.next_deadline() is None
    loop.close()


def test_a_post_wakes_the_loop_and_a_closed_loop_refuses_it() -> None:
    loop = EventLoop()
    posted: list[int] = []
    timer = threading.Timer(0.1, lambda: loop.post(lambda: posted.append(1)))
    timer.start()
    began = time.monotonic()
    loop.step(30)
    assert posted == [1]
    assert time.monotonic() - began < 10
    timer.join()
    loop.close()
    assert not loop.post(lambda: posted.append(2))


def test_closing_inside_a_call_ends_everything() -> None:
    loop = EventLoop()
    served: list[int] = []
    loop.post(loop.close)
    loop.post(lambda: served.append(1))
    loop.call_later(0, lambda: served.append(2))
    loop.step(1)
    assert served == []
