"""Tests of `nacre.Tool`: concurrent callers, options, names."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nacre
from tests.support.helpers import named


def test_one_tool_from_many_threads() -> None:
    with nacre.Tool("harness") as tool, ThreadPoolExecutor(16) as pool:
        texts = pool.map(lambda i: tool.call({"command": f"echo {i}"}).details["stdout"], range(64))
        assert list(texts) == [f"{i}\n" for i in range(64)]


def test_many_tasks_share_one_tool_without_an_extra_thread() -> None:
    async def many(tool: nacre.Tool) -> list[nacre.Reply]:
        calls = asyncio.gather(
            *(tool.acall({"command": f"sleep 0.1; echo {i}"}) for i in range(50))
        )
        await asyncio.sleep(0.05)
        assert threading.active_count() == 1
        return await calls

    with nacre.Tool("harness") as tool:
        replies = asyncio.run(many(tool))
    assert [reply.details["stdout"] for reply in replies] == [f"{i}\n" for i in range(50)]


def test_the_event_loop_turns_while_commands_run() -> None:
    async def scenario() -> int:
        turns = 0
        task = asyncio.create_task(nacre.arun("sleep 0.5"))
        while not task.done():
            await asyncio.sleep(0.01)
            turns += 1
        return turns

    assert asyncio.run(scenario()) >= 20


@pytest.mark.parametrize(("command", "is_in_loop"), [("echo a", True), ("seq 99999", False)])
def test_the_reply_to_much_output_is_built_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, is_in_loop: bool
) -> None:
    threads = []
    with nacre.Tool(cwd=tmp_path, place="here") as tool:
        build = type(tool.contract).reply

        def note_thread(*arguments: Any) -> nacre.Reply:
            threads.append(threading.get_ident())
            return build(*arguments)

        monkeypatch.setattr(type(tool.contract), "reply", note_thread)
        reply = asyncio.run(tool.acall({"command": command}))
    assert reply.details["exit_code"] == 0
    assert [each == threading.get_ident() for each in threads] == [is_in_loop]


def test_a_blocking_call_inside_a_running_event_loop() -> None:
    async def scenario() -> tuple[str, str]:
        with nacre.Tool("harness") as tool:
            task = asyncio.create_task(tool.acall({"command": "sleep 0.2; echo slow"}))
            await asyncio.sleep(0.05)
            quick = tool.call({"command": "echo quick"})
            return quick.details["stdout"], (await task).details["stdout"]

    assert asyncio.run(scenario()) == ("quick\n", "slow\n")


def test_timers_armed_in_a_blocking_call_reach_the_event_loop(tmp_path: Path) -> None:
    async def scenario() -> nacre.Outcome:
        token = nacre.CancelToken()
        stubborn = "trap '' TERM; touch ready; while :; do sleep 0.05; done"
        task = asyncio.create_task(nacre.arun(stubborn, cwd=tmp_path, cancel=token, grace=0.5))
        while not (tmp_path / "ready").exists():
            await asyncio.sleep(0.02)
        threading.Timer(0.1, token.cancel).start()
        nacre.run("sleep 0.4")
        return await asyncio.wait_for(task, 10)

    assert asyncio.run(scenario()).ending == nacre.Cancelled(nacre.Killed(9))


def test_an_event_loop_that_was_closed_with_a_call_pending() -> None:
    tool = nacre.Tool("harness")
    loop = asyncio.new_event_loop()
    task = loop.create_task(tool.acall({"command": "sleep 96.5"}))
    loop.run_until_complete(asyncio.sleep(0.2))
    closer = threading.Thread(target=tool.close)
    closer.start()
    closer.join(10)
    assert not closer.is_alive()
    assert named("sleep 96.5") == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_one_event_loop_after_the_other() -> None:
    with nacre.Tool("harness") as tool:
        for i in range(3):
            reply = asyncio.run(tool.acall({"command": f"sleep 0.05; echo {i}"}))
            assert reply.details["stdout"] == f"{i}\n"


def test_the_environment_of_a_tool() -> None:
    with nacre.Tool("harness", env={"ONLY": "this"}) as tool:
        assert tool.call({"command": "echo $ONLY ${HOME-none}"}).details["stdout"] == "this none\n"


def test_the_directory_of_a_tool_is_fixed_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with nacre.Tool("harness", cwd=".") as fixed, nacre.Tool("harness") as free:
        monkeypatch.chdir("/")
        assert fixed.call({"command": "pwd"}).details["stdout"] == f"{tmp_path}\n"
        assert free.call({"command": "pwd"}).details["stdout"] == "/\n"


def test_signalling_a_live_run() -> None:
    with nacre.Tool("harness") as tool:

        def listen(event: nacre.Event) -> None:
            if isinstance(event, nacre.Chunk) and b"ready" in event.data:
                assert tool.signal(event.run, 10).found

        script = "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.02; done"
        reply = tool.call({"command": script}, listen=listen)
        assert "got\n" in reply.details["stdout"]
        assert reply.details["exitCode"] == 5
        assert not tool.signal("r99", 10).found


@pytest.mark.parametrize("number", [0, -1, 65, 999])
def test_an_invalid_signal_number_is_an_error(number: int) -> None:
    with nacre.Tool("harness") as tool, pytest.raises(ValueError, match="is not a signal"):
        tool.signal("r1", number)
    with pytest.raises(ValueError, match="is not a signal"):
        nacre.CancelToken().cancel(number)


def test_a_directory_that_cannot_be_one() -> None:
    with nacre.Tool("harness", cwd="/a\0b") as tool:
        assert "does not exist" in tool.call({"command": "true"}).details["error"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"contract": "harnes"}, "there is no contract 'harnes'.*did you mean 'harness'"),
        ({"options": {"timeuot": 5}}, "there is no option 'timeuot'; did you mean 'timeout'"),
        ({"options": {"timeout": "soon"}}, "bad option: "),
        ({"options": {"timeout": -1}}, "bad option: "),
        ({"place": "moon"}, "place 'moon' is unknown"),
    ],
)
def test_a_tool_that_cannot_be_made_says_why(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        nacre.Tool(**arguments)


def test_an_unknown_format_says_what_there_is() -> None:
    with pytest.raises(ValueError, match="formats: anthropic, openai, mcp"):
        nacre.Tool().specs(format="cohere")  # type: ignore[arg-type]


def test_importing_does_nothing_to_be_seen(home: Path) -> None:
    code = (
        "import sys, threading; before = set(sys.modules); import nacre\n"
        "new = {m for m in set(sys.modules) - before if m.split('.')[0] == 'nacre'}\n"
        "print(sorted(new), threading.active_count())\n"
        "nacre.Tool('harness').specs()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout == "['nacre'] 1\n"
    assert said.stderr == ""
    assert not home.exists()


def test_every_public_name_is_there() -> None:
    for name in nacre.__all__:
        assert getattr(nacre, name) is not None
    assert "Tool" in dir(nacre)
    with pytest.raises(AttributeError, match="has no attribute 'Tol'"):
        nacre.Tol  # noqa: B018


def test_two_tools_do_not_disturb_each_other() -> None:
    with nacre.Tool("harness") as one:
        two = nacre.Tool("harness")
        thread = threading.Timer(0.2, two.close)
        thread.start()
        assert one.call({"command": "sleep 0.5; echo fine"}).details["stdout"] == "fine\n"
        thread.join()
    assert named("sleep 0.5; echo fine") == []
