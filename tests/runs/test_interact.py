"""Tests of the background jobs of the pi contract."""

import asyncio
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre import Chunk, Exited, Finished, Started
from tests.support import wardens
from tests.support.command_line import PROGRAM
from tests.support.helpers import eventually, named

pytestmark = pytest.mark.slow


def pi(cwd: Path, **options: Any) -> nacre.Tool:
    return nacre.Tool("pi", cwd=cwd, options={"async": True, **options})


def job(tool: nacre.Tool, **arguments: Any) -> nacre.Reply:
    return tool.call(arguments, tool="job")


def test_list_poll_and_cancel(tmp_path: Path) -> None:
    with pi(tmp_path) as tool:
        tool.call({"command": "echo one; sleep 0.4; exit 2", "async": True})
        tool.call({"command": "sleep 300.551 & sleep 300.551", "async": True})
        listed = job(tool, list=True)
        assert [each["status"] for each in listed.details["jobs"]] == ["running", "running"]
        assert listed.text.splitlines()[1].startswith("r1    running ")
        for _ in range(2):  # the result of a job can be polled repeatedly
            polled = job(tool, poll=["r1"])
            assert not polled.is_error
            (each,) = polled.details["jobs"]
            assert each.pop("durationMs") >= 400
            assert each == {
                "id": "r1",
                "type": "bash",
                "status": "failed",
                "label": "echo one; sleep 0.4; exit 2",
                "exitCode": 2,
            }
            assert polled.text.startswith(
                "r1 failed: echo one; sleep 0.4; exit 2\none\nWall time: "
            )
            assert polled.text.endswith("\nCommand exited with code 2")
        cancelled = job(tool, cancel=["r2", "r1", "r77"])
        assert [each["status"] for each in cancelled.details["jobs"]] == ["cancelled", "failed"]
        assert cancelled.details["cancelled"] == [
            {"id": "r2", "status": "cancelled"},
            {"id": "r1", "status": "already_completed"},
            {"id": "r77", "status": "not_found"},
        ]
        assert not named("300.551")
        for arguments in ({"list": True}, {"poll": ["r2", "r1"]}):
            jobs = job(tool, **arguments).details["jobs"]
            assert [each["status"] for each in jobs] == ["cancelled", "failed"]


def test_a_cancelled_job_stays_cancelled_however_its_shell_ended(
    tmp_path: Path, home: Path
) -> None:
    with pi(tmp_path, grace=0.5) as tool:
        for command in ("trap 'exit 0' TERM; echo x; sleep 300.553 & wait", "sleep 300.553"):
            name = tool.call({"command": command, "async": True}).details["async"]["jobId"]
            eventually(lambda: named("300.553"))
            if command == "sleep 300.553":  # the process that would record the end is dead
                wardens.kill(home)
            cancelled = job(tool, cancel=[name])
            assert cancelled.text == f"{name}: cancelled"
            for arguments in ({"list": True}, {"poll": [name]}):
                jobs = job(tool, **arguments).details["jobs"]
                assert [each["status"] for each in jobs if each["id"] == name] == ["cancelled"]
            assert not named("300.553")


def test_a_run_of_another_program_that_is_cancelled_is_cancelled(tmp_path: Path) -> None:
    words = [PROGRAM, "call", "--contract", "pi", '{"command": "sleep 300.555"}']
    other = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
    with pi(tmp_path, grace=0.5) as tool:
        eventually(lambda: tool.runs() and len(named("sleep 300.555")) > 1)
        cancelled = job(tool, cancel=["r1"])
        assert cancelled.text == "r1: cancelled"
        assert [each["status"] for each in cancelled.details["jobs"]] == ["cancelled"]
        assert job(tool, poll=["r1"]).details["jobs"][0]["status"] == "cancelled"
    assert other.wait(20) == 0


def test_a_cancel_ends_what_an_ended_job_left_running(tmp_path: Path) -> None:
    with pi(tmp_path) as tool:
        tool.call({"command": "sleep 300.554 & echo done", "async": True})
        assert job(tool, poll=["r1"]).details["jobs"][0]["status"] == "completed"
        cancelled = job(tool, cancel=["r1"])
        assert cancelled.details["cancelled"] == [{"id": "r1", "status": "already_completed"}]
        head, _, tail = cancelled.text.partition("\nended: ")
        assert (head, tail.split()[1:]) == ("r1: already_completed", ["sleep", "300.554"])
        assert not named("300.554")
        assert job(tool, list=True).details["jobs"][0]["status"] == "completed"


def test_poll_waits_for_the_first_and_not_for_ever(tmp_path: Path) -> None:
    with pi(tmp_path, poll_wait=0.3) as tool:
        tool.call({"command": "sleep 300.552", "async": True})
        begin = time.monotonic()
        polled = job(tool, poll=["r1"])
        assert 0.3 <= time.monotonic() - begin < 5
        assert polled.text.startswith("r1 running: sleep 300.552\n(no output yet)\nRunning for ")
        tool.call({"command": "sleep 0.1; echo done", "async": True})
        polled = job(tool, poll=["r1", "r2"])
        assert [each["status"] for each in polled.details["jobs"]] == ["running", "completed"]
        job(tool, cancel=["r1"])


def test_a_cancelled_poll_still_reports_the_jobs(tmp_path: Path) -> None:
    with pi(tmp_path) as tool:
        tool.call({"command": "sleep 300.556", "async": True})
        token = nacre.CancelToken()
        threading.Timer(0.3, token.cancel).start()
        polled = tool.call({"poll": ["r1"]}, tool="job", cancel=token)
        assert polled.text.startswith("r1 running: sleep 300.556\n")
        assert not polled.is_error
        assert tool.call({}, tool="job", cancel=token).text == "No background jobs run."
        job(tool, cancel=["r1"])


def test_jobs_survive_a_restart_and_are_the_workspaces(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pi(tmp_path) as tool:
        tool.call({"command": "echo kept; sleep 0.3", "async": True})
    with pi(tmp_path) as again, pi(tmp_path / "other") as stranger:
        assert job(stranger, list=True).text == "No background jobs."
        assert "kept" in job(again, poll=["r1"]).text
        assert again.call({"command": "cat artifact://1"}).text.startswith("kept\n")


def test_a_jobs_completion_is_delivered_once(tmp_path: Path) -> None:
    heard: list[nacre.Event] = []

    async def main() -> None:
        with pi(tmp_path) as tool:
            reply = await tool.acall(
                {"command": "echo a; sleep 0.3; echo b; exit 4", "async": True}, listen=heard.append
            )
            assert reply.details["async"]["state"] == "running"
            assert not [each for each in heard if isinstance(each, Finished)]
            # No call waits for the job; the event loop of the host keeps running.
            for _ in range(200):
                await asyncio.sleep(0.02)
                if heard and isinstance(heard[-1], Finished):
                    break
            await asyncio.sleep(0.2)

    asyncio.run(main())
    assert isinstance(heard[0], Started)
    assert b"".join(each.data for each in heard if isinstance(each, Chunk)) == b"a\nb\n"
    (finished,) = [each for each in heard if isinstance(each, Finished)]
    assert finished.outcome.ending == Exited(4)
    assert finished.outcome.output.head == b"a\nb\n"


def test_a_host_without_an_event_loop_gets_the_completion_at_its_next_call(tmp_path: Path) -> None:
    heard: list[nacre.Event] = []
    with pi(tmp_path) as tool:
        tool.call({"command": "echo a; sleep 0.2", "async": True}, listen=heard.append)
        eventually(lambda: tool.runs()[0].state == "exited")
        tool.call({"command": "true"})
        eventually(lambda: heard and isinstance(heard[-1], Finished))
        tool.call({"command": "true"})
    assert len([each for each in heard if isinstance(each, Finished)]) == 1


def test_a_call_becomes_a_job_without_losing_a_byte(tmp_path: Path) -> None:
    """The command writes without a pause while nacre turns the call into a job."""
    script = "i=0; while [ $i -lt 30000 ]; do echo $((i++)); done; exit 5"
    whole = "".join(f"{i}\n" for i in range(30000))
    for wait in (0.02, 0.05, 0.1):
        with pi(tmp_path, auto_background=wait) as tool:
            reply = tool.call({"command": script})
            run = tool.run(reply.run or "")
            outcome = run.wait(20)
            assert outcome is not None
            assert outcome.ending == Exited(5)
            assert run.read(most=1 << 22).text == whole
            if "async" in reply.details:
                preview = reply.text.partition("Background job")[0].removesuffix("\n")
                assert whole.startswith(preview) or preview.startswith("[last ")


def test_a_job_that_was_turned_no_longer_holds_up_its_session(tmp_path: Path) -> None:
    with pi(tmp_path, auto_background=0.2) as tool:
        reply = tool.call({"command": "sleep 300.553"})
        assert reply.details["async"]["jobId"] == "r1"
        begin = time.monotonic()
        assert tool.call({"command": "echo next"}).text.startswith("next\n")
        assert time.monotonic() - begin < 5
        job(tool, cancel=["r1"])


def test_a_job_keeps_its_timeout(tmp_path: Path) -> None:
    with pi(tmp_path, auto_background=0.1) as tool:
        tool.call({"command": "echo x; sleep 300.554", "timeout": 1})
        outcome = tool.run("r1").wait(10)
        assert outcome is not None
        assert isinstance(outcome.ending, nacre.TimedOut)
        assert "Command timed out after 1 second" in job(tool, poll=["r1"]).text


def test_a_cap_refuses_and_lists(tmp_path: Path) -> None:
    with pi(tmp_path, max_jobs=2) as tool:
        for _ in range(2):
            assert not tool.call({"command": "sleep 300.555", "async": True}).is_error
        refused = tool.call({"command": "touch made", "async": True})
        assert refused.is_error
        assert refused.text == (
            "2 background jobs run, and 2 may; wait for one of them, or end one:\n"
            "  r1  sleep 300.555\n  r2  sleep 300.555"
        )
        assert not (tmp_path / "made").exists()
        job(tool, cancel=["r1"])
        assert not tool.call({"command": "true", "async": True}).is_error
        job(tool, cancel=["r2"])


def test_without_a_job_manager(tmp_path: Path) -> None:
    options = {"async": True, "auto_background": 0.1}
    with nacre.Tool("pi", cwd=tmp_path, options=options, place="here") as tool:
        reply = tool.call({"command": "touch made", "async": True})
        assert (reply.text, reply.is_error) == (
            "Async job manager unavailable for this session.",
            True,
        )
        assert tool.call({"command": "sleep 0.4; echo hi"}).text.startswith("hi\n\nWall time: ")
    assert not (tmp_path / "made").exists()


def test_the_specs_have_the_job_tool_only_with_background_jobs() -> None:
    with nacre.Tool("pi") as without, nacre.Tool("pi", options={"async": True}) as with_jobs:
        assert [spec["name"] for spec in without.specs()] == ["bash"]
        bash, jobs = with_jobs.specs("openai")
        assert jobs["function"]["name"] == "job"
        assert list(jobs["function"]["parameters"]["properties"]) == ["list", "poll", "cancel"]
        assert without.call({"list": True}, tool="job").is_error
        assert bash["function"]["strict"] is False
