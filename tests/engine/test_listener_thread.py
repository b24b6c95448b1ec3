"""Tests of listeners: events are complete, in order and at the listener's own pace.

A slow or failing listener must not delay the command.
"""

import threading
import time

import pytest

import nacre
from nacre import Chunk, Event, Exited, Finished, Full, Listening, Started, Stream, Streams
from tests.support.helpers import resident

pytestmark = pytest.mark.slow


def data_of(events: list[Event], stream: Stream = Stream.OUTPUT) -> bytes:
    chunks = [each for each in events if isinstance(each, Chunk) and each.stream is stream]
    return b"".join(each.data for each in chunks)


def test_started_chunks_finished_in_this_order() -> None:
    heard: list[Event] = []
    outcome = nacre.run("echo one; sleep 0.2; echo two", listen=heard.append)
    first, *chunks, last = heard
    assert isinstance(first, Started)
    assert first.run == outcome.run
    assert all(isinstance(each, Chunk) for each in chunks)
    assert data_of(heard) == b"one\ntwo\n"
    assert last == Finished(run=outcome.run, outcome=outcome)


def test_output_is_heard_while_the_command_runs() -> None:
    heard = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Chunk):
            heard.set()

    token = nacre.CancelToken()

    def cancel_when_heard() -> None:
        heard.wait(20)
        token.cancel()

    threading.Thread(target=cancel_when_heard).start()
    assert isinstance(
        nacre.run("echo x; sleep 60", listen=listen, cancel=token).ending, nacre.Cancelled
    )


def test_each_chunk_names_its_stream() -> None:
    heard: list[Event] = []
    nacre.run("echo out; echo err >&2", streams=Streams.SEPARATE, listen=heard.append)
    assert data_of(heard) == b"out\n"
    assert data_of(heard, Stream.ERRORS) == b"err\n"


def test_a_listener_that_wants_rest_hears_less_often_and_everything() -> None:
    heard: list[Event] = []
    script = "for i in $(seq 40); do echo $i; sleep 0.01; done"
    nacre.run(script, listen=Listening(listener=heard.append, every=0.2))
    assert data_of(heard) == b"".join(b"%d\n" % i for i in range(1, 41))
    assert 2 <= sum(isinstance(each, Chunk) for each in heard) <= 8


def test_a_slow_listener_does_not_hold_up_the_command() -> None:
    heard: list[Event] = []

    def slow(event: Event) -> None:
        time.sleep(0.2)
        heard.append(event)

    began = time.monotonic()
    outcome = nacre.run("for i in $(seq 100); do echo $i; sleep 0.002; done", listen=slow)
    assert outcome.ending == Exited(0)
    assert time.monotonic() - began < 5
    assert data_of(heard) == b"".join(b"%d\n" % i for i in range(1, 101))
    assert isinstance(heard[-1], Finished)


def test_too_much_for_a_slow_listener_is_skipped_and_counted() -> None:
    heard: list[Event] = []

    def slow(event: Event) -> None:
        time.sleep(0.1)
        heard.append(event)

    wish = Listening(listener=slow, buffer=10_000)
    outcome = nacre.run("head -c 5000000 /dev/zero", listen=wish)
    skipped = sum(each.skipped for each in heard if isinstance(each, Chunk))
    assert outcome.output.size == 5_000_000
    assert skipped > 0
    assert skipped + len(data_of(heard)) == 5_000_000


def test_a_listener_may_have_the_command_wait_for_it() -> None:
    heard: list[Event] = []

    def slow(event: Event) -> None:
        time.sleep(0.005)
        heard.append(event)

    wish = Listening(listener=slow, buffer=100_000, full=Full.WAIT)
    nacre.run("head -c 5000000 /dev/zero", listen=wish)
    assert len(data_of(heard)) == 5_000_000
    assert sum(each.skipped for each in heard if isinstance(each, Chunk)) == 0


def test_a_deadline_holds_while_the_command_waits_for_its_listener() -> None:
    release = threading.Event()

    def stuck(event: Event) -> None:
        if isinstance(event, Chunk):
            release.wait(20)

    wish = Listening(listener=stuck, buffer=1000, full=Full.WAIT, linger=0.1)
    began = time.monotonic()
    outcome = nacre.run("yes", listen=wish, timeout=0.5, grace=0.5)
    release.set()
    assert isinstance(outcome.ending, nacre.TimedOut)
    assert time.monotonic() - began < 10


def test_a_stuck_listener_of_a_stopped_flood_holds_no_more_than_its_buffer() -> None:
    release = threading.Event()
    wish = Listening(
        listener=lambda _: release.wait(20), buffer=100_000, full=Full.WAIT, linger=0.1
    )
    before = resident()
    nacre.run("trap '' TERM; cat /dev/zero", listen=wish, timeout=0.3, grace=0.5)
    assert resident() - before < 20_000_000
    release.set()


def test_a_cancel_while_only_the_listener_is_busy_does_not_wait_for_it() -> None:
    release = threading.Event()
    token = nacre.CancelToken()
    threading.Timer(0.4, token.cancel).start()
    began = time.monotonic()
    wish = Listening(listener=lambda _: release.wait(20), linger=None)
    assert nacre.run("echo x", listen=wish, cancel=token).ending == Exited(0)
    assert time.monotonic() - began < 5
    release.set()


def test_a_listener_that_never_returns_is_not_waited_for() -> None:
    release = threading.Event()
    began = time.monotonic()
    wish = Listening(listener=lambda _: release.wait(20), linger=0.2)
    assert nacre.run("echo x", listen=wish).ending == Exited(0)
    assert time.monotonic() - began < 10
    release.set()


def test_a_raising_listener_changes_nothing() -> None:
    heard: list[Event] = []

    def raising(event: Event) -> None:
        heard.append(event)
        raise RuntimeError("listener's trouble")

    outcome = nacre.run("echo x; exit 3", listen=raising)
    assert outcome.ending == Exited(3)
    assert isinstance(heard[-1], Finished)


@pytest.mark.parametrize("full", Full)
def test_a_listener_that_exits_changes_nothing(full: Full) -> None:
    def exiting(_: Event) -> None:
        raise SystemExit(1)

    began = time.monotonic()
    wish = Listening(listener=exiting, full=full, buffer=1000, linger=None)
    assert nacre.run("head -c 3000000 /dev/zero", listen=wish).output.size == 3_000_000
    assert time.monotonic() - began < 20


def test_a_listener_may_close_the_tool() -> None:
    tool = nacre.Tool("harness")

    def close(event: Event) -> None:
        if isinstance(event, Chunk):
            tool.close()

    began = time.monotonic()
    reply = tool.call({"command": "echo on; sleep 60"}, listen=close)
    assert reply.details["error"] == "command cancelled"
    assert time.monotonic() - began < 20


def test_a_listener_may_run_commands_itself() -> None:
    inner: list[bytes] = []

    def listen(event: Event) -> None:
        if isinstance(event, Chunk):
            inner.append(nacre.run("echo inner").output.head)

    nacre.run("echo outer", listen=listen)
    assert inner == [b"inner\n"]
