"""Tests of cancelling a run: by a thread, an asyncio task, a closing tool or a signal."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre import Cancelled, CancelToken, Exited, Killed, NotStarted
from nacre.model.refusals import CalledOff, Closed, Refused
from tests.support.helpers import eventually, named

pytestmark = pytest.mark.slow

SECONDS = f"98764.{os.getpid():07d}"
LONG = f"echo on; (setsid sleep {SECONDS} &); sleep {SECONDS}"


def test_cancel_from_another_thread() -> None:
    token = CancelToken()
    timer = threading.Timer(0.3, token.cancel)
    timer.start()
    outcome = nacre.run(LONG, cancel=token)
    timer.join()
    assert outcome.ending == Cancelled(how=Killed(signal.SIGTERM))
    assert outcome.output.head == b"on\n"
    assert named(SECONDS) == []


def test_cancelled_before_it_starts_runs_nothing(tmp_path: Path) -> None:
    token = CancelToken()
    token.cancel()
    mark = tmp_path / "mark"
    outcome = nacre.run(f"touch {mark}", cancel=token)
    assert outcome.ending == NotStarted(CalledOff())
    assert not mark.exists()


def test_cancelled_before_it_starts_is_heard_by_the_listener() -> None:
    token = CancelToken()
    token.cancel()
    heard: list[nacre.Event] = []
    outcome = nacre.run("true", cancel=token, listen=heard.append)
    assert heard == [nacre.Finished(run=outcome.run, outcome=outcome)]


def test_cancelling_after_the_end_changes_nothing() -> None:
    token = CancelToken()
    assert nacre.run("exit 4", cancel=token).ending == Exited(4)
    token.cancel()


def test_cancelling_twice_does_not_wait_for_the_grace() -> None:
    token = CancelToken()
    script = "trap '' TERM; echo on; while :; do sleep 0.05; done"
    for delay in (0.3, 0.6):
        threading.Timer(delay, token.cancel).start()
    began = time.monotonic()
    outcome = nacre.run(script, cancel=token, grace=30)
    assert outcome.ending == Cancelled(how=Killed(signal.SIGKILL))
    assert time.monotonic() - began < 10
    eventually(lambda: threading.active_count() == 1)


def test_one_token_stops_many() -> None:
    token = CancelToken()
    threading.Timer(0.3, token.cancel).start()

    async def many() -> list[nacre.Outcome]:
        return await asyncio.gather(*(nacre.arun(LONG, cancel=token) for _ in range(5)))

    assert [each.ending for each in asyncio.run(many())] == [Cancelled(Killed(signal.SIGTERM))] * 5
    assert named(SECONDS) == []


def test_cancelling_a_task_is_raised_when_the_tree_is_gone() -> None:
    async def scenario() -> None:
        with nacre.Tool("harness") as tool:
            task = asyncio.create_task(tool.acall({"command": LONG}))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert named(SECONDS) == []

    asyncio.run(scenario())


def test_a_timeout_around_a_call_stops_it() -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await nacre.arun(LONG)
        assert named(SECONDS) == []

    asyncio.run(scenario())


def test_closing_the_tool_stops_what_is_waited_for() -> None:
    tool = nacre.Tool("harness")
    threading.Timer(0.3, tool.close).start()
    reply = tool.call({"command": LONG})
    assert reply.details["error"] == "command cancelled"
    assert reply.details["stdout"] == "on\n"
    assert named(SECONDS) == []
    eventually(lambda: threading.active_count() == 1)


def test_closing_the_tool_inside_its_event_loop() -> None:
    async def scenario() -> str:
        tool = nacre.Tool("harness")
        task = asyncio.create_task(tool.acall({"command": LONG}))
        await asyncio.sleep(0.3)
        tool.close()
        assert named(SECONDS) == []
        return (await task).text

    assert '"error":"command cancelled"' in asyncio.run(scenario())


def test_a_closed_tool_says_so() -> None:
    tool = nacre.Tool("harness")
    tool.close()
    assert tool.call({"command": "true"}).details == {
        "error": "this tool is closed; create a new one"
    }
    with pytest.raises(Refused) as refused:
        tool.answer({"command": "true"})
    assert refused.value.refusal == Closed()
    tool.close()


def test_a_keyboard_interrupt_in_a_host_ends_the_command_first() -> None:
    code = f"""
        import nacre
        try:
            nacre.run("(setsid sleep {SECONDS} &); sleep {SECONDS}")
        except KeyboardInterrupt:
            print("interrupted")
    """
    host = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    eventually(lambda: len(named(SECONDS)) >= 3)
    host.send_signal(signal.SIGINT)
    assert host.communicate(timeout=30)[0] == "interrupted\n"
    assert named(SECONDS) == []


def test_waiting_for_a_ticket_elsewhere_is_an_error_that_says_so() -> None:
    from nacre.engine.engine import Engine
    from nacre.model.plan import Command, Plan

    engine = Engine()
    command = Command(original=b"true", script=b"true", cwd=os.fsencode(os.getcwd()))
    ticket = engine.start(Plan(command=command))
    errors: list[str] = []

    def elsewhere() -> None:
        try:
            ticket.wait()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert errors == ["a ticket must be waited for in the thread that started the operation"]
    assert ticket.wait().ending == Exited(0)


def test_closing_an_engine_ends_runs_without_a_waiting_caller() -> None:
    from nacre.engine.engine import Engine
    from nacre.model.plan import Command, Plan

    engine = Engine()
    script = f"sleep {SECONDS}".encode()
    plan = Plan(command=Command(original=script, script=script, cwd=os.fsencode(os.getcwd())))
    thread = threading.Thread(target=lambda: engine.start(plan))
    thread.start()
    thread.join()
    engine.start(plan)
    eventually(lambda: len(named(SECONDS)) == 2)  # exec of `sleep` may take a moment
    engine.close()
    assert named(SECONDS) == []


def test_closing_a_tool_at_any_moment_of_a_call_ends_the_call() -> None:
    """Close the tool at random moments, also between the start of a call and its first wait."""
    dice = random.Random(3)
    for _ in range(60):
        tool = nacre.Tool("harness")
        replies: list[dict[str, Any]] = []

        def call(tool: nacre.Tool = tool, replies: list[dict[str, Any]] = replies) -> None:
            replies.append(tool.call({"command": "sleep 20"}).details)

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(dice.uniform(0, 0.006))
        tool.close()
        for thread in threads:
            thread.join(10)
        said = {reply["error"] for reply in replies}
        assert len(replies) == 3
        assert said <= {"command cancelled", "this tool is closed; create a new one"}
