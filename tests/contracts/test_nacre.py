"""Tests of the contract nacre that need more than one call and its reply."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

import nacre
from nacre.contracts.nacre import contract, job
from nacre.model.requests import IdempotencyKey
from nacre.process.process_tree import send_signal
from nacre.procfs import ports, processes
from nacre.runs import conditions, inspect
from nacre.store import idempotency
from nacre.store.workspace import find_workspace
from nacre.text import line_index
from tests.support import wardens
from tests.support.helpers import (
    PYTHON,
    WAIT_FOR_GO,
    alive,
    eventually,
    free_port,
    named,
    resident,
)

pytestmark = pytest.mark.slow

SERVER = f"""{PYTHON} -c '
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    began = time.monotonic()
    def do_GET(self):
        self.send_response(503 if time.monotonic() - self.began < 0.5 else 404)
        self.end_headers()
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("listening on", server.server_port, flush=True)
server.serve_forever()
' """


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[nacre.Tool]:
    place = tmp_path / "place"
    place.mkdir()
    with nacre.Tool(cwd=place) as made:
        yield made
        for job in listed(made):
            if job["state"] in ("running", "waiting_input") or job["left_running"]:
                act(made, "signal", run=job["run"], signal="KILL")


def act(tool: nacre.Tool, action: str, **more: Any) -> nacre.Reply:
    return tool.call({"action": action, **more}, tool="job")


def listed(tool: nacre.Tool) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = act(tool, "list").details["runs"]
    return runs


def without_pid(reply: nacre.Reply) -> str:
    """Return the text of a reply without what the run's processes do."""
    text = re.sub(r"; pid \d+[^;\]]*", "", reply.text)
    return re.sub(r"; no output yet \([^)]*\)", "", text)


# Tests of retries with a request id.


def test_the_same_request_ten_times_at_once_runs_once(tool: nacre.Tool, tmp_path: Path) -> None:
    arguments = {"command": "echo ran >> count; sleep 0.5; echo $$", "request_id": "one"}
    tools = [tool, *(nacre.Tool(cwd=tmp_path / "place") for _ in range(2))]
    with ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(lambda n: tools[n % 3].call(arguments), range(10)))
    for each in tools[1:]:
        each.close()
    assert (tmp_path / "place" / "count").read_text() == "ran\n"
    assert len({reply.text for reply in replies}) == 1
    assert len({reply.details["run"] for reply in replies}) == 1


def test_a_retry_gets_the_run_of_the_first_one_for_as_long_as_it_is_known(
    tool: nacre.Tool, home: Path
) -> None:
    arguments = {"command": "echo once; exit 3", "request_id": "x"}
    first = tool.call(arguments)
    wardens.end(home)
    with nacre.Tool(cwd=home.parent / "place") as another:
        again = another.call({**arguments, "wait": 1, "max_output": 100})
    assert (again.text, again.details) == (first.text, first.details)
    assert again.text == "once\n[exit code 3]"


def test_a_retry_of_what_still_runs_waits_for_it(tool: nacre.Tool, tmp_path: Path) -> None:
    script = "echo on; until [ -e go ]; do sleep 0.02; done; echo over"
    arguments = {"command": script, "request_id": "x"}
    assert tool.call({**arguments, "wait": 0}).details["state"] == "running"
    until = tool.call({**arguments, "until": {"output": "on"}})
    assert until.details["until"] == {"output": "on", "line": 1, "text": "on"}
    soon = tool.call({**arguments, "wait": 0.1})
    assert (without_pid(soon), soon.details["state"]) == (
        "on\n[r1 is running; cursor 3]",
        "running",
    )
    (tmp_path / "place" / "go").touch()
    assert tool.call(arguments).text == "on\nover\n"


@pytest.mark.parametrize(
    "other",
    [{"command": "echo 2"}, {"timeout": 5}, {"env": {"A": "b"}}, {"cwd": "/"}, {"stdin": "x"}],
)
def test_the_same_id_for_something_else_is_refused(tool: nacre.Tool, other: dict[str, Any]) -> None:
    arguments = {"command": "echo 1", "request_id": "x"}
    tool.call(arguments)
    reply = tool.call({**arguments, **other})
    assert reply.is_error
    assert reply.details["refusal"]["id"] == "other_request"
    assert "used for another command before (r1)" in reply.text


def test_an_id_belongs_to_its_workspace(tool: nacre.Tool, tmp_path: Path) -> None:
    arguments = {"command": "pwd", "request_id": "x"}
    other = tmp_path / "other"
    other.mkdir()
    with nacre.Tool(cwd=other) as elsewhere:
        assert elsewhere.call(arguments).text == f"{other}\n"
    assert tool.call(arguments).text == f"{tmp_path / 'place'}\n"


def test_what_was_refused_may_be_asked_again(tool: nacre.Tool, tmp_path: Path) -> None:
    arguments = {"command": "pwd", "cwd": "later", "request_id": "x"}
    assert tool.call(arguments).is_error
    (tmp_path / "place" / "later").mkdir()
    assert tool.call(arguments).text == f"{tmp_path / 'place' / 'later'}\n"


def test_a_claim_of_a_process_that_died_before_its_run_is_taken_over(
    tool: nacre.Tool, tmp_path: Path
) -> None:
    place = find_workspace(os.fsencode(tmp_path / "place"))
    code = (
        "import os, sys; from nacre.model.requests import IdempotencyKey;"
        "from nacre.store import idempotency;"
        f"idempotency.claim_key(IdempotencyKey(id='x', digest='d'), {place!r}, 7, 'warden')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert tool.call({"command": "echo mine", "request_id": "x"}).text == "mine\n"
    held = idempotency.claim_key(IdempotencyKey(id="x", digest="other"), place, 99, "host")
    assert held.run != 99


def test_requests_also_count_where_nothing_outlives_its_call(tmp_path: Path) -> None:
    arguments = {"command": "echo ran >> count; sleep 0.3; echo $$", "request_id": "one"}
    with nacre.Tool(cwd=tmp_path, place="here") as tool, ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: tool.call(arguments), range(4)))
        assert tool.call({**arguments, "until": {"idle": 1}}).is_error
    assert (tmp_path / "count").read_text() == "ran\n"
    assert len({reply.text for reply in replies}) == 1


def test_a_request_is_written_down_before_anything_runs(tmp_path: Path) -> None:
    command = 'for file in "$NACRE_HOME"/journal/*/*; do read -r line < "$file"; echo "$line"; done'
    with nacre.Tool(cwd=tmp_path, place="here") as tool:
        said = tool.call({"command": command, "request_id": "x"}).text
    assert said.startswith('{"type":"begun","run":1,')


# Tests of the conditions of `until`.


def test_a_port_counts_when_this_run_listens_there(tool: nacre.Tool) -> None:
    port = free_port()
    reply = tool.call({"command": f"{SERVER} {port}", "until": {"port": port}})
    assert reply.details["state"] == "running"
    assert reply.details["until"] == {"port": port, "pid": reply.details["until"]["pid"]}
    assert (
        f"[r1 is running: port {port} is open (pid {reply.details['until']['pid']}); cursor "
        in reply.text
    )
    # The condition `port` of a run ignores a listener of another run.
    other = tool.call({"command": "sleep 66.1", "until": {"port": port}, "wait": 0.6})
    assert "until" not in other.details
    assert other.details["state"] == "running"


def test_a_url_counts_once_it_answers_with_less_than_500(tool: nacre.Tool) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/health"
    reply = tool.call({"command": f"{SERVER} {port}", "until": {"http": url}})
    assert reply.details["until"] == {"http": url, "status": 404}
    assert reply.details["seconds"] >= 0.5


def test_until_is_seen_through_colours_and_before_the_line_ends(tool: nacre.Tool) -> None:
    command = "printf 'Local: \\033[36mhttp://localhost:\\033[1m5173\\033[0m/ '; sleep 66.2"
    reply = tool.call({"command": command, "until": {"output": "localhost:5173/"}})
    assert reply.details["until"]["text"] == "Local: http://localhost:5173/ "


def test_silence_counts_from_the_start_of_the_run(tool: nacre.Tool, home: Path) -> None:
    """The idle time must not count from the call, because a slow warden delays the run's start."""
    tool.call({"command": "sleep 66.4", "wait": 0})
    (warden,) = wardens.find(home)
    send_signal(warden, signal.SIGSTOP)
    slow = threading.Timer(2.5, send_signal, (warden, signal.SIGCONT))
    slow.start()
    reply = tool.call({"command": "echo a; sleep 66.4", "until": {"idle": 2}})
    slow.join()
    assert without_pid(reply) == "a\n[r2 is running: no output for 2 s; cursor 2]"


@pytest.mark.alone
def test_a_pattern_that_never_ends_only_costs_the_wait(tool: nacre.Tool) -> None:
    command = f"echo {'a' * 60}b; sleep 66.3"
    began = time.monotonic()
    reply = tool.call({"command": command, "until": {"output": "(a+)+$"}, "wait": 1})
    assert reply.details["state"] == "running"
    assert time.monotonic() - began < 5


def test_a_search_that_never_ends_is_given_up(
    tool: nacre.Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "_SEARCH_SECONDS", 1.0)
    monkeypatch.setattr(inspect, "_SEARCH_GRACE", 5.0)
    tool.call({"command": f"echo found aab; echo {'a' * 60}b"})
    reply = act(tool, "read", run="r1", grep="^(a+)+$|found")
    assert reply.text.startswith("1:found aab\n[search incomplete; continue: job ")
    assert reply.details["output"]["cut"]


# Tests of the actions of the tool `job`: wait, read, write and signal.


def test_a_question_is_answered_and_the_answer_to_that_is_seen(tool: nacre.Tool) -> None:
    ask = "printf 'Proceed? [y/N] '; read x; echo you said $x; printf 'Name? '; read n; echo hi $n"
    first = tool.call({"command": ask, "interactive": True})
    assert (first.details["state"], first.details["prompt"]) == ("waiting_input", "Proceed? [y/N] ")
    assert [job["state"] for job in listed(tool)] == ["waiting_input"]
    assert act(tool, "read", run="r1").details["state"] == "waiting_input"
    second = act(tool, "write", run="r1", text="y\n")
    assert second.text == "you said y\nName? \n[r1 waits for input]"
    assert second.details["prompt"] == "Name? "
    last = act(tool, "write", run="r1", text="Ann\n")
    assert (last.text, last.details["state"]) == ("hi Ann\n", "exited")


def test_text_without_a_newline_is_remarked_upon(tool: nacre.Tool) -> None:
    tool.call({"command": "read x; echo $x", "interactive": True})
    reply = act(tool, "write", run="r1", text="y")
    assert reply.details["state"] == "waiting_input"
    assert reply.details["hints"] == ["text had no \\n at its end; the program may wait for that"]
    assert act(tool, "write", run="r1", text="es\n").text == "yes\n"


def test_the_end_of_input_can_be_written(tool: nacre.Tool) -> None:
    tool.call({"command": "sort; echo over", "interactive": True})
    assert act(tool, "write", run="r1", text="b\na\n", eof=True).text == "a\nb\nover\n"
    assert "has ended" in act(tool, "write", run="r1", text="x").text


def test_a_run_without_open_stdin_refuses_a_write(tool: nacre.Tool) -> None:
    tool.call({"command": "sleep 66.4", "wait": 0})
    reply = act(tool, "write", run="r1", text="x\n")
    assert reply.is_error
    assert "started without an open stdin" in reply.text
    assert "interactive" in reply.text


def test_the_first_of_several_is_waited_for(tool: nacre.Tool) -> None:
    tool.call({"command": "sleep 66.5", "wait": 0})
    tool.call({"command": "sleep 0.4; echo quick", "wait": 0})
    reply = act(tool, "wait", runs=["r1", "r2"])
    assert [each["state"] for each in reply.details["runs"]] == ["running", "exited"]
    expected = "r1 (sleep 66.5):\n[r1 is running]\nr2 (sleep 0.4; echo quick):\nquick"
    assert without_pid(reply) == expected


def test_with_a_cursor_only_what_is_new_is_shown_and_matched(tool: nacre.Tool) -> None:
    command = f"echo ready; {WAIT_FOR_GO}; echo ready again; sleep 66.6"
    reply = tool.call({"command": command, "until": {"output": "ready"}})
    Path(tool.cwd.decode(), "go").touch()
    cursor = reply.details["output"]["cursor"]
    reply = act(tool, "wait", run="r1", since=cursor, until={"output": "ready"})
    assert without_pid(reply) == "ready again\n[r1 is running: line 2 matches ready; cursor 18]"
    assert reply.details["output"]["shown"] == [[2, 2]]
    # Without a cursor, a condition that earlier output already met counts at once.
    again = act(tool, "wait", run="r1", until={"output": "^ready$"})
    assert again.details["until"]["line"] == 1


def test_a_run_that_ends_between_two_calls_is_still_reported(tool: nacre.Tool) -> None:
    assert tool.call({"command": "sleep 1; echo end; exit 5", "wait": 0.1}).details["run"] == "r1"
    eventually(lambda: listed(tool)[0]["state"] == "exited")
    for reply in (act(tool, "wait", run="r1"), act(tool, "read", run="r1")):
        assert reply.text == "end\n[exit code 5]"
        assert reply.details["exit_code"] == 5


def test_a_signal_ends_all_of_a_run_and_leads_to_killed(tool: nacre.Tool) -> None:
    script = "setsid sleep 66.7 & trap '' TERM; echo up; sleep 66.7"
    tool.call({"command": script, "until": {"output": "up"}})
    reply = act(tool, "signal", run="r1", grace=0.3)
    assert reply.details["state"] == "killed"
    assert "[killed by SIG" in reply.text
    assert named("sleep 66.7") == []


def test_other_signals_are_only_sent(tool: nacre.Tool) -> None:
    script = "trap 'echo got it' USR1; echo up; while :; do sleep 0.1; done"
    tool.call({"command": script, "until": {"output": "up"}})
    reply = act(tool, "signal", run="r1", signal="SIGUSR1")
    assert reply.details["state"] == "running"
    eventually(lambda: "got it" in act(tool, "read", run="r1").text)


def test_what_was_left_running_can_be_ended_and_is_listed_with_its_ports(tool: nacre.Tool) -> None:
    port = free_port()
    probe = f"until (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.05; done"
    reply = tool.call({"command": f"{SERVER} {port} & {probe}", "timeout": 20})
    (left,) = reply.details["left_running"]
    assert left["ports"] == [port]
    assert f", port {port}]" in reply.text
    assert listed(tool)[0]["left_running"] == [left]
    assert f", port {port})" in act(tool, "list").text
    assert act(tool, "signal", run="r1").text.startswith(f"[ended: {left['pid']} ")
    assert not alive(left["pid"])
    assert listed(tool)[0]["left_running"] == []


def test_a_foreign_id_is_not_found(tool: nacre.Tool, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with nacre.Tool(cwd=other) as elsewhere:
        elsewhere.call({"command": "sleep 66.8", "wait": 0})
        for action, more in (
            ("read", {}),
            ("wait", {}),
            ("write", {"text": "x"}),
            ("signal", {}),
        ):
            reply = act(tool, action, run="r1", **more)
            assert reply.is_error
            assert reply.details["refusal"]["id"] == "not_found"
        assert listed(tool) == []
        assert act(elsewhere, "signal", run="r1").details["state"] == "killed"


def test_a_cap_refuses_and_lists_what_lives(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, options={"max_runs": 2}) as tool:
        tool.call({"command": "sleep 66.9", "wait": 0})
        tool.call({"command": "sleep 66.91", "wait": 0})
        reply = tool.call({"command": "touch made"})
        assert reply.is_error
        assert reply.details["refusal"]["id"] == "too_many"
        assert "2 commands run, and 2 may" in reply.text
        assert "r1  sleep 66.9" in reply.text
        assert [job["state"] for job in listed(tool)] == ["running", "running"]
        for run in ("r1", "r2"):
            act(tool, "signal", run=run)
        assert tool.call({"command": "echo room"}).text == "room\n"
    assert not (tmp_path / "made").exists()


# Tests of callers that disconnect, die or cancel.


def test_a_client_that_vanishes_leaves_its_run_behind(tool: nacre.Tool, tmp_path: Path) -> None:
    arguments = json.dumps({"command": f"echo begun; {WAIT_FOR_GO}; echo done; exit 4"})
    program = str(Path(sys.executable).parent / "nacre")
    client = subprocess.Popen(
        [program, "call", arguments], cwd=tmp_path / "place", stdout=subprocess.DEVNULL
    )
    eventually(lambda: any(job["state"] == "running" for job in listed(tool)))
    client.send_signal(signal.SIGKILL)
    client.wait()
    (tmp_path / "place" / "go").touch()
    reply = act(tool, "wait", run="r1")
    assert reply.text == "begun\ndone\n[exit code 4]"


def test_a_cancelled_call_ends_its_command(tool: nacre.Tool) -> None:
    async def cancelled() -> None:
        call = asyncio.create_task(
            tool.acall({"command": "sleep 67.1", "until": {"output": "never"}})
        )
        while not named("sleep 67.1"):
            await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    assert named("sleep 67.1") == []
    assert [job["state"] for job in listed(tool)] == ["cancelled"]


@pytest.mark.parametrize(
    ("until", "module", "function", "call"),
    [
        ({"port": 1}, ports, "is_port_taken", 3),
        ({"idle": 9}, conditions._WatchedRun, "size", 3),
        ({"output": "never"}, conditions, "encode_query", 1),
    ],
)
def test_an_interrupt_while_conditions_are_checked_ends_the_command(
    tool: nacre.Tool,
    monkeypatch: pytest.MonkeyPatch,
    until: dict[str, Any],
    module: Any,
    function: str,
    call: int,
) -> None:
    """Python raises KeyboardInterrupt between any two bytecodes, also inside a check."""
    original, calls = getattr(module, function), 0

    def interrupted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise KeyboardInterrupt
        return original(*args)

    tool.call({"command": "true"})  # starts the warden
    monkeypatch.setattr(module, function, interrupted)
    with pytest.raises(KeyboardInterrupt):
        tool.call({"command": "sleep 67.9", "until": until})
    assert {run.state for run in tool.runs()} <= {"exited", "cancelled"}
    assert not named("67.9")


def test_a_check_that_fails_does_not_hurt_the_command(
    tool: nacre.Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(port: int) -> bool:
        raise OSError(24, f"Too many open files while port {port} is checked")

    monkeypatch.setattr(ports, "is_port_taken", fail)
    reply = tool.call({"command": "sleep 68.1", "until": {"port": 1}, "wait": 0.6})
    assert without_pid(reply) == "[r1 is running; until is not met yet]"


def test_cancelling_a_wait_leaves_the_run(tool: nacre.Tool) -> None:
    tool.call({"command": "sleep 67.2", "wait": 0})
    token = nacre.CancelToken()

    async def waited() -> nacre.Reply:
        asyncio.get_running_loop().call_later(0.3, token.cancel)
        ask = {"action": "wait", "run": "r1", "until": {"output": "never"}}
        return await tool.acall(ask, tool="job", cancel=token)

    reply = asyncio.run(waited())
    assert (reply.text, reply.is_error) == (
        "[refused: the call was cancelled; the run is still running]",
        True,
    )
    assert reply.details["state"] == "cancelled"
    assert [job["state"] for job in listed(tool)] == ["running"]


def test_fifty_calls_at_once_each_have_their_own_reply(tool: nacre.Tool) -> None:
    async def all_of_them() -> list[nacre.Reply]:
        calls = [tool.acall({"command": f"sleep 0.1; echo {n}"}) for n in range(50)]
        return await asyncio.gather(*calls)

    assert [reply.text for reply in asyncio.run(all_of_them())] == [f"{n}\n" for n in range(50)]


def test_a_call_that_was_called_off_before_it_began_says_so(tmp_path: Path) -> None:
    token = nacre.CancelToken()
    token.cancel()
    places: list[tuple[Any, dict[str, Any]]] = [
        ("auto", {"until": {"output": "x"}}),
        ("auto", {"request_id": "there"}),
        ("here", {"request_id": "here"}),
    ]
    for place, more in places:
        with nacre.Tool(cwd=tmp_path, place=place) as tool:
            reply = tool.call({"command": "touch made", **more}, cancel=token)
            assert reply.details["state"] == "cancelled", (place, more)
            assert not (tmp_path / "made").exists()
            if "request_id" in more:  # nothing ran, so the same request id may run now
                tool.call({"command": "touch made", **more})
                (tmp_path / "made").unlink()


def test_a_search_does_not_outlive_a_killed_harness(tmp_path: Path) -> None:
    code = f"""if True:
        import nacre
        with nacre.Tool(cwd={str(tmp_path)!r}) as tool:
            tool.call({{"command": "echo a; sleep 3", "until": {{"output": "never-67.4"}}}})
    """
    harness = subprocess.Popen([sys.executable, "-c", code])
    with nacre.Tool(cwd=tmp_path) as tool:
        eventually(lambda: any(job["state"] == "running" for job in listed(tool)))

    def searching() -> list[int]:
        return [
            each.pid
            for each in processes.read_all_processes().values()
            if each.parent == harness.pid
            and "nacre.text.search" in processes.command_line(each.pid)
        ]

    eventually(searching)
    (search,) = searching()
    harness.kill()
    harness.wait()
    eventually(lambda: not alive(search))
    with nacre.Tool(cwd=tmp_path) as tool:
        assert act(tool, "wait", run="r1").text == "a\n"


def test_a_stopped_warden_does_not_block_list_and_read(tool: nacre.Tool, home: Path) -> None:
    tool.call({"command": "cat", "interactive": True})
    (warden,) = wardens.find(home)
    os.kill(warden.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert [job["run"] for job in listed(tool)] == ["r1"]
        assert act(tool, "read", run="r1").details["state"] == "running"
        assert time.monotonic() - began < 8
    finally:
        os.kill(warden.pid, signal.SIGCONT)


def test_threads_that_have_gone_leave_no_descriptors(tool: nacre.Tool) -> None:
    tool.call({"command": "sleep 67.5", "wait": 0})
    waited = {"action": "wait", "run": "r1", "wait": 0.1}
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda _: tool.call(waited, tool="job"), range(20)))
    assert len(os.listdir("/proc/self/fd")) <= before + 8


def test_an_endless_http_answer_does_not_block_the_call(tool: nacre.Tool) -> None:
    import socket
    import threading

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        over = threading.Event()

        def drip() -> None:
            made, _ = server.accept()
            with made:
                made.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not over.wait(0.2):
                    try:
                        made.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        began = time.monotonic()
        reply = tool.call({"command": "sleep 67.6", "until": {"http": url}, "wait": 0.6})
        assert "until" not in reply.details
        assert time.monotonic() - began < 5
        over.set()
        thread.join()


def test_an_http_answer_of_a_foreign_process_is_marked(tool: nacre.Tool) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    assert (
        "foreign_pid"
        not in tool.call({"command": f"{SERVER} {port}", "until": {"http": url}}).details["until"]
    )
    reply = tool.call({"command": "sleep 67.7", "until": {"http": url}})
    assert reply.details["until"]["foreign_pid"]
    assert "not part of this run" in reply.text


def test_what_was_left_running_is_listed_however_long_ago(tool: nacre.Tool) -> None:
    tool.call({"command": "sleep 67.8 & echo"})
    for _ in range(40):
        tool.call({"command": "true"})
    assert listed(tool)[0]["run"] == "r1"
    assert act(tool, "signal", runs=["r1"]).details["state"] == "exited"
    assert named("sleep 67.8") == []


def test_files_are_waited_for_where_the_command_runs(tool: nacre.Tool, tmp_path: Path) -> None:
    (tmp_path / "place" / "sub").mkdir()
    command = {"command": "touch there; sleep 67.9", "cwd": "sub", "wait": 0}
    tool.call(command)
    reply = act(tool, "wait", run="r1", until={"file": "there"}, wait=5)
    assert reply.details["until"] == {"file": str(tmp_path / "place" / "sub" / "there")}


def test_a_long_line_can_be_read_by_what_the_reply_names(tool: nacre.Tool) -> None:
    line = "a" * 9000 + "NEEDLE" + "b" * 9000
    reply = tool.call({"command": f"seq 5; echo {line}; seq 5", "max_output": 1000})
    said = re.search(r"job (\{.*?\})", reply.text)
    assert said is not None
    assert "NEEDLE" in tool.call(json.loads(said[1]), tool="job").text
    whole = tool.call({"command": f"echo {line}"})
    assert (whole.text, whole.details["output"]["cut"]) == (f"{line}\n", False)
    cut = tool.call({"command": f"echo {line}", "max_output": 4000})
    assert cut.details["output"]["cut"]
    said = re.search(r"left out: job (\{.*?\})", cut.text)
    assert said is not None
    assert "NEEDLE" in tool.call(json.loads(said[1]), tool="job").text


def test_pages_are_the_whole_output_each_byte_once(tool: nacre.Tool) -> None:
    text = "".join(f"{n} é€😀 {'x' * (n % 70)}\n" for n in range(300)) + "no end"
    tool.call({"command": "cat", "stdin": text})
    seen, cursor = "", 0
    while True:
        reply = act(tool, "read", run="r1", since=cursor, max_output=701)
        body = re.sub(r"\[[\d,]+ bytes follow: job \{.*\}\]$", "", reply.text)
        cursor = reply.details["output"]["cursor"]
        ended = seen + body
        seen = ended if text.startswith(ended) else ended[:-1]
        assert text.startswith(seen)
        if cursor == len(text.encode()):
            break
    assert seen == text


def test_many_take_over_a_stale_claim_and_one_wins(tmp_path: Path) -> None:
    place = find_workspace(os.fsencode(tmp_path))
    code = (
        "import os; from nacre.model.requests import IdempotencyKey;"
        "from nacre.store import idempotency;"
        f"idempotency.claim_key(IdempotencyKey(id='x', digest='d'), {place!r}, 7, 'host')"
    )
    request = IdempotencyKey(id="x", digest="d")
    for turn in range(20):
        idempotency.release_key(request, place, 7)
        for number in range(8):
            idempotency.release_key(request, place, 100 * turn - 100 + number)
        subprocess.run([sys.executable, "-c", code], check=True)
        with ThreadPoolExecutor(8) as pool:
            numbers = range(100 * turn, 100 * turn + 8)
            won = list(
                pool.map(lambda n: idempotency.claim_key(request, place, n, "host").run, numbers)
            )
        assert len(set(won)) == 1


# Tests with long logs.


@pytest.mark.alone
def test_a_line_of_a_long_log_is_found_in_bounded_memory_and_time(
    tool: nacre.Tool, home: Path
) -> None:
    count = 20_000_000
    reply = tool.call({"command": f"seq {count}", "wait": 60, "max_output": 200})
    assert reply.details["output"]["lines"] == count
    assert (home / "runs" / "r1" / "output.lines").stat().st_size >= 16 * 30
    before, began = resident(), time.monotonic()
    middle = act(tool, "read", run="r1", **{"from": 12_345_678, "to": 12_345_680})
    assert middle.text == "12345678\n12345679\n12345680\n"
    assert act(tool, "read", run="r1", lines=2).text == f"{count - 1}\n{count}\n"
    far = reply.details["output"]["bytes"] - 9
    assert act(tool, "read", run="r1", since=far).text == f"{count}\n"
    wide = act(tool, "read", run="r1", **{"from": 5, "max_output": 200})
    assert wide.text.startswith("5\n6\n7\n")
    assert wide.text.endswith(f"{count}\n")
    assert time.monotonic() - began < 4
    assert resident() - before < 32 * 1024 * 1024
    began = time.monotonic()
    found = act(tool, "read", run="r1", grep="^19999998$", context=1)
    assert found.text == "19999997-19999997\n19999998:19999998\n19999999-19999999\n"
    assert time.monotonic() - began < 15
    began = time.monotonic()
    assert act(tool, "read", run="r1", grep="x", to=10).text == "(no match in lines 1 to 10)"
    assert time.monotonic() - began < 4


def test_the_index_is_written_as_the_log_is(tool: nacre.Tool, home: Path) -> None:
    tool.call({"command": "seq 3000000; sleep 67.3", "wait": 0, "timeout": 60})
    eventually(lambda: listed(tool)[0]["output"]["lines"] == 3_000_000)
    known = line_index.LineIndex(os.fsencode(home / "runs" / "r1" / "output"))
    assert known.before_line(3_000_000).newlines > 2_000_000
    middle = act(tool, "read", run="r1", **{"from": 2_999_999})
    assert middle.text.startswith("2999999\n3000000\n[r1 is running")


# Tests with arguments of any kind and type.


class Odd(str):
    """Subclass of str, to test arguments that are not plain strings."""


ODDITIES = [None, True, 0, -1, 3, 10**400, 1.5, float("nan"), float("inf"), "", "r1", "x", "\ud800"]
ODDITIES += ["\udc80", "a\0b", "[[a]", "(", "(a+)+$", "~/x", "http://x y/", Odd("q")]
odd = st.recursive(
    st.sampled_from(ODDITIES) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
BASH = [field.encode_name for field in fields(contract.Bash) if field.name != "command"]
JOB = [field.encode_name for field in fields(job.Arguments)]
UNTIL = st.dictionaries(st.sampled_from(["output", "port", "http", "file", "idle", "x"]), odd)


def test_huge_numbers_and_deeply_nested_arguments_are_refused(tool: nacre.Tool) -> None:
    for field in JOB:
        assert tool.call({"action": "wait", "run": "r1", field: 10**5000}, tool="job").is_error
    for field in BASH:
        assert tool.call({"command": "true", field: 10**5000}).is_error
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert tool.call({"command": "true", "until": nested}).is_error
    assert tool.call({"action": nested}, tool="job").is_error


@given(
    st.dictionaries(st.sampled_from(BASH), odd, max_size=3),
    st.dictionaries(st.sampled_from(JOB), odd, max_size=4),
    UNTIL,
    st.sampled_from(["list", "read", "wait", "write", "signal", "screen", "kill"]),
)
@settings(max_examples=150)
def test_any_arguments_of_a_model_get_a_reply_of_the_same_shape(
    tmp_path_factory: pytest.TempPathFactory,
    bash: dict[str, Any],
    job: dict[str, Any],
    until: dict[str, Any],
    action: str,
) -> None:
    # Commands are blank and run ids are unknown, so that nothing runs.
    with nacre.Tool(cwd=tmp_path_factory.getbasetemp()) as tool:
        for name, arguments in (
            ("bash", {"command": " ", **bash, "until": until}),
            ("bash", bash),
            ("job", {"action": action, **job, "wait": 0}),
            ("job", {"action": "wait", "run": "r1", "until": until, "wait": 0}),
            ("job", job),
        ):
            reply = tool.call(arguments, tool=name)
            reply.text.encode()
            json.dumps(reply.details).encode()
            if reply.is_error:
                assert reply.details["refusal"]["id"]
                assert reply.details["state"] == "not_started"


# Tests of the descriptions and schemas of the tools.


def test_descriptions_tell_the_limits_in_force() -> None:
    with nacre.Tool(options={"wait": 7, "timeout": 90, "max_output": 5000}) as tool:
        bash, job = tool.specs()
    said = json.dumps(bash)
    assert "(default 7)" in bash["description"]
    assert "5,000 bytes" in bash["description"]
    assert "NOT a timeout" in bash["description"]
    assert "NOT a kill timeout" in bash["input_schema"]["properties"]["wait"]["description"]
    assert "Default 90, 0: none" in said
    assert "default 5000" in said
    assert "at most `wait` seconds (7)" in job["description"]
    assert len(bash["description"]) < 1100
    assert len(job["description"]) < 1100


def test_a_front_that_waits_less_says_so_in_its_descriptions() -> None:
    with nacre.Tool(options={"max_wait": 10}) as tool:
        assert "default 10" in tool.specs()[0]["input_schema"]["properties"]["wait"]["description"]


@pytest.mark.parametrize("format", ["anthropic", "openai", "mcp"])
def test_every_field_is_declared(format: Any) -> None:
    with nacre.Tool() as tool:
        bash = json.dumps(tool.specs(format=format)[0])
    fields = "command wait timeout cwd env stdin interactive session until max_output leave"
    for field in [*fields.split(), "request_id", "output", "port", "http", "file", "idle"]:
        assert re.search(rf'"{field}": {{', bash), field
