"""Tests of `nacre rpc` in a real process: JSON lines on stdin, JSON lines on stdout."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.contracts.provider_formats import Format
from tests.support.command_line import PROGRAM, run_nacre
from tests.support.helpers import alive, eventually, named

pytestmark = pytest.mark.slow

Message = dict[str, Any]


class Rpc:
    """Minimal RPC client for one `nacre rpc` process."""

    def __init__(self, *words: str, cwd: Path, descriptors: int = 1024) -> None:
        limited = f'ulimit -n {descriptors}; exec "$0" rpc "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", limited, PROGRAM, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        self._is_ready = False

    def send(self, **message: Any) -> None:
        self.send_line(json.dumps(message).encode())

    def send_line(self, line: bytes) -> None:
        self._in.write(line + b"\n")
        self._in.flush()

    def next(self) -> Message:
        if not self._is_ready:
            assert self._out.readline() == b'{"type":"ready"}\n'
            self._is_ready = True
        message: Message = json.loads(self._out.readline())
        return message

    def response(self) -> Message:
        """Return the next response and skip the events before it."""
        while (message := self.next())["type"] != "response":
            continue
        return message

    def ask(self, **message: Any) -> Any:
        self.send(**message)
        response = self.response()
        assert response["success"], response
        return response["data"]

    def refused(self, **message: Any) -> str:
        self.send(**message)
        response = self.response()
        assert not response["success"], response
        return str(response["error"])

    def end(self) -> tuple[int, str]:
        """Close stdin, wait for the server to exit, and return its exit code and stderr."""
        if not self._in.closed:
            self._in.close()
        code = self.process.wait(20)
        assert self.process.stderr is not None
        with self._out, self.process.stderr as errors:
            self._out.read()
            return code, errors.read().decode()


@pytest.fixture
def rpc(tmp_path: Path) -> Iterator[Rpc]:
    client = Rpc(cwd=tmp_path)
    yield client
    assert client.end() == (0, "")


def test_bash_streams_its_output_and_answers_with_the_result(rpc: Rpc) -> None:
    rpc.send(id="1", type="bash", command="echo hello; exit 3")
    assert rpc.next() == {"id": "1", "type": "bash_output", "chunk": "hello\n"}
    assert rpc.next() == {
        "id": "1",
        "type": "response",
        "command": "bash",
        "success": True,
        "data": {
            "output": "hello\n",
            "exitCode": 3,
            "cancelled": False,
            "truncated": False,
            "totalLines": 1,
            "totalBytes": 6,
            "outputLines": 1,
            "outputBytes": 6,
            "run": "r1",
        },
    }


def test_bash_takes_cwd_env_and_timeout(rpc: Rpc, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    data = rpc.ask(type="bash", command='echo "$PWD $X"', cwd="sub", env={"X": "é"})
    assert data["output"] == f"{tmp_path}/sub é\n"
    data = rpc.ask(type="bash", command="echo early; sleep 60", timeout=2)
    assert data["output"] == "[Command timed out after 2 seconds]\nearly\n"
    assert ("exitCode" in data, data["cancelled"], data["totalBytes"]) == (False, True, 6)
    assert (data["timedOut"], data["annotation"]) == (True, "Command timed out after 2 seconds")
    data = rpc.ask(type="bash", command="kill -9 $$")
    assert (data["exitCode"], data["signal"], data["cancelled"]) == (137, "SIGKILL", False)


def test_bash_takes_no_lift_no_interception_and_no_turns(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    rpc = Rpc("--contract", "pi", "--set", "intercept=block", cwd=tmp_path)
    assert rpc.ask(type="bash", command="cd sub && cat /dev/null; pwd")["output"].endswith("sub\n")
    rpc.send(id="slow", type="bash", command="sleep 60")
    assert rpc.ask(id="quick", type="bash", command="echo now")["output"] == "now\n"
    assert rpc.end()[0] == 0


def test_a_response_has_the_end_of_a_long_output_and_read_has_all(rpc: Rpc) -> None:
    data = rpc.ask(type="bash", command="seq 100000", stream=False)
    assert data["truncated"]
    assert data["output"].endswith("99999\n100000\n")
    assert (data["totalLines"], data["totalBytes"]) == (100000, 588895)
    assert (data["outputLines"], data["outputBytes"]) == (8534, 51200)
    part = rpc.ask(type="read", run=data["artifactId"], **{"from": 50000, "to": 50001})
    assert part["text"] == "50000\n50001\n"
    assert part["bytes"] == 588895


def test_nothing_of_a_stream_is_lost_to_a_slow_client(rpc: Rpc) -> None:
    rpc.send(id="s", type="bash", command="seq 300000")
    time.sleep(0.5)  # the client reads nothing during this time
    said = ""
    while (message := rpc.next())["type"] == "bash_output":
        said += message["chunk"]
    assert said == "".join(f"{i}\n" for i in range(1, 300001))


def test_a_character_that_comes_in_two_pieces_is_one(rpc: Rpc) -> None:
    rpc.send(type="bash", command=r"printf '\xc3'; sleep 0.3; printf '\xa9!\xff'")
    said = ""
    while (message := rpc.next())["type"] == "bash_output":
        said += message["chunk"]
    assert said == "é!\ufffd"


def test_call_answers_what_nacre_call_prints(rpc: Rpc, tmp_path: Path) -> None:
    for contract in ("nacre", "phoenix", "harness", "pi"):
        given = {"command": "echo out; echo err >&2; exit 3"}
        data = rpc.ask(type="call", contract=contract, arguments=given)
        words = ["call", "--contract", contract, json.dumps(given)]
        printed = json.loads(run_nacre(*words, cwd=tmp_path).stdout)
        for said in (data, printed):  # drop the fields that differ between runs
            for name in ("run", "seconds", "wallTimeMs"):
                said.get("details", {}).pop(name, None)
            if contract == "pi":
                (part,) = said["content"]
                part["text"] = part["text"].partition("Wall")[0]
                assert said["isError"] is True
        assert data == printed


def test_call_takes_tool_options_tools_and_streams(rpc: Rpc) -> None:
    assert rpc.ask(type="call", tool="job", arguments={"action": "list"})["content"] == "(no runs)"
    given = {"contract": "pi", "options": {"intercept": "block"}, "tools": ["read"]}
    data = rpc.ask(type="call", arguments={"command": "cat f"}, **given)
    assert data["content"][0]["text"].startswith("Blocked: ")
    rpc.send(
        id=7,
        type="call",
        contract="harness",
        arguments={"command": "echo out; sleep 0.3; echo err >&2"},
        stream=True,
    )
    assert rpc.next() == {"id": 7, "type": "bash_output", "chunk": "out\n"}
    assert rpc.next() == {"id": 7, "type": "bash_output", "chunk": "err\n", "stream": "stderr"}
    assert rpc.next()["data"]["exitCode"] == 0


def test_the_contract_answers_a_bad_call_and_the_server_a_bad_message(rpc: Rpc) -> None:
    data = rpc.ask(type="call", arguments={"command": 5})
    assert data["content"] == "[refused: command must be a string, not 5]"
    assert rpc.refused(type="bash") == "command is required"
    assert "does not exist" in rpc.refused(type="bash", command="ls", cwd="/nowhere/at/all")
    assert "there is no contract 'x'" in rpc.refused(type="call", contract="x", arguments={})
    assert "no option" in rpc.refused(type="call", options={"x": 1}, arguments={})
    assert "arguments" in rpc.refused(type="call")
    assert rpc.refused(type="read", run=[]).endswith("takes run, cwd, since, from, to, lines, most")
    assert "stream must be true or false" in rpc.refused(type="bash", command="ls", stream=1)


def test_lines_that_make_no_sense_get_an_error_line_and_the_loop_goes_on(rpc: Rpc) -> None:
    for line in (b"{", b"[1]", b"3", b'"x"', b"\xff\xfe", b"[" * 100_000, b"x" * 2_000_000):
        rpc.send_line(line)
        message = rpc.next()
        assert sorted(message) == ["command", "error", "success", "type"]
        assert (message["type"], message["success"]) == ("response", False)
        assert message["command"] == "parse"
    rpc.send_line(b"")  # the server ignores an empty line
    assert rpc.refused().startswith("type is required; types: bash, ")
    rpc.send(id="a", type="sing")
    assert rpc.next() == {
        "id": "a",
        "type": "response",
        "command": "sing",
        "success": False,
        "error": "there is no type 'sing'; types: bash, abort_bash, call, schema, ps, read, "
        "wait, write, kill, ping",
    }
    assert rpc.refused(type="ping", id={"x": 1}) == "id must be a string or a number"
    assert rpc.ask(type="ping") == {"nacre": nacre.__version__}


def test_a_line_may_have_a_mebibyte(rpc: Rpc) -> None:
    head, tail = b'{"type": "bash", "stream": false, "command": ": ', b'"}'
    rpc.send_line(head + b"x" * (1024 * 1024 - len(head) - len(tail)) + tail)
    assert rpc.response()["data"]["exitCode"] == 0
    rpc.send_line(head + b"x" * (1024 * 1024 - len(head) - len(tail) + 1) + tail)
    assert rpc.response()["error"] == "a line has more than 1048576 bytes; send a shorter one"


def test_an_id_is_used_by_one_at_a_time(rpc: Rpc) -> None:
    rpc.send(id=1, type="bash", command="sleep 60")
    rpc.send(id=1, type="ping")
    assert rpc.next()["error"] == "the id 1 is in use; choose another"
    rpc.send(id=1, type="abort_bash", target=1)
    assert {(rpc.response()["command"]) for _ in range(2)} == {"bash", "abort_bash"}
    assert rpc.ask(id=1, type="ping")


def test_unknown_fields_are_ignored_with_a_warning(rpc: Rpc) -> None:
    rpc.send(id="a", type="bash", command="echo hi", stream=False, excludeFromContext=True, x=1)
    message = rpc.next()
    assert message["data"]["output"] == "hi\n"
    assert message["warning"] == (
        "ignored: excludeFromContext, x; besides id and type, bash takes command, cwd, env, "
        "timeout, stream"
    )
    rpc.send(type="bash", cmd="ls")
    message = rpc.next()
    assert (message["success"], message["error"]) == (False, "command is required")
    assert message["warning"].startswith("ignored: cmd;")
    rpc.send(type="ping", x=1)
    message = rpc.next()
    assert message["warning"] == "ignored: x; besides id and type, ping takes nothing more"
    rpc.send(type="ping")
    assert "warning" not in rpc.next()


def test_abort_with_a_target_ends_that_one_and_everything_it_started(rpc: Rpc) -> None:
    rpc.send(id="a", type="bash", command="(setsid sleep 71.5 &) ; echo a; sleep 71.5")
    rpc.send(id="b", type="bash", command="echo b; sleep 71.6")
    assert {rpc.next()["chunk"], rpc.next()["chunk"]} == {"a\n", "b\n"}
    rpc.send(id="b", type="abort_bash", target="a")
    both = {message["command"]: message for message in (rpc.response(), rpc.response())}
    assert (both["abort_bash"]["id"], both["bash"]["id"]) == ("b", "a")
    assert both["abort_bash"]["data"] == {"aborted": 1}
    assert both["bash"]["data"]["cancelled"] is True
    assert both["bash"]["data"]["output"] == "[Command cancelled]\na\n"
    assert both["bash"]["data"]["annotation"] == "Command aborted"
    assert named("sleep 71.5") == []
    assert named("sleep 71.6")
    refused = rpc.refused(type="abort_bash", id="b", target="gone")
    assert refused == "no running call has the id 'gone'; abort_bash without target stops all"
    assert named("sleep 71.6")
    rpc.send(id="mine", type="abort_bash", target="b")
    assert {rpc.response()["command"], rpc.response()["command"]} == {"abort_bash", "bash"}
    assert named("sleep 71.6") == []


@pytest.mark.parametrize("id", [{}, {"id": "a"}, {"id": "mine"}])
def test_abort_without_a_target_ends_all(rpc: Rpc, id: Message) -> None:
    for name in ("a", "b"):
        rpc.send(id=name, type="bash", command=f"echo {name}; sleep 71.4")
    assert {rpc.next()["chunk"], rpc.next()["chunk"]} == {"a\n", "b\n"}
    rpc.send(type="abort_bash", **id)
    responses = [rpc.response() for _ in range(3)]
    assert sorted(each["command"] for each in responses) == ["abort_bash", "bash", "bash"]
    assert [each.get("id") for each in responses if each["command"] == "abort_bash"] == [
        id.get("id")
    ]
    assert named("sleep 71.4") == []


@pytest.mark.parametrize(
    ("command", "state", "text"),
    [
        ("echo x; sleep 0.5", "completed", "x\n\nWall time: "),
        ("echo x; sleep 0.5; exit 3", "failed", "x\n\nWall time: "),
        ("echo x; sleep 71.3", "cancelled", "x\n\nWall time: "),
    ],
)
def test_the_end_of_a_background_job_is_one_message(
    tmp_path: Path, command: str, state: str, text: str
) -> None:
    rpc = Rpc("--contract", "pi", "--set", "async=true", cwd=tmp_path)
    data = rpc.ask(id="7", type="call", arguments={"command": command, "async": True})
    job = data["details"]["async"]["jobId"]
    assert data["details"]["async"] == {"state": "running", "jobId": job, "type": "bash"}
    if state == "cancelled":
        eventually(lambda: named("sleep 71.3"))
        rpc.send(id="8", type="call", tool="job", arguments={"cancel": [job]})
    message = rpc.next()
    if message["type"] == "response":
        message = rpc.next()
    elif state == "cancelled":
        assert rpc.next()["id"] == "8"
    assert (message["id"], message["type"]) == ("7", "tool_execution_update")
    assert (message["toolCallId"], message["toolName"]) == ("7", "bash")
    assert message["details"]["async"] == {"state": state, "jobId": job, "type": "bash"}
    assert message["content"][0]["text"].startswith(text)
    assert message["isError"] is (state != "completed")
    for name in ("content", "details", "isError"):
        assert message["partialResult"][name] == message[name]
    for arguments in ({"list": True}, {"poll": [job]}):
        data = rpc.ask(type="call", tool="job", arguments=arguments)
        assert [(each["id"], each["status"]) for each in data["details"]["jobs"]] == [(job, state)]
    assert rpc.end() == (0, "")


def test_the_end_of_a_detached_run_of_any_contract_is_announced(rpc: Rpc) -> None:
    rpc.ask(id=1, type="call", arguments={"command": "sleep 0.3; echo end", "wait": 0})
    message = rpc.next()
    assert message["content"] == [{"type": "text", "text": "end\n"}]
    assert message["details"]["async"]["state"] == "completed"
    assert (message["id"], message["details"]["state"]) == (1, "exited")
    given = {"command": "sleep 0.3; exit 4", "background": True}
    rpc.ask(id=2, type="call", contract="phoenix", arguments=given)
    message = rpc.next()
    assert message["content"][0]["text"].startswith("[command failed: exit code 4]")
    assert (message["id"], message["details"]["async"]["state"]) == (2, "failed")


def test_abort_ends_calls_too(rpc: Rpc) -> None:
    rpc.send(id=1, type="call", arguments={"command": "echo x; sleep 71.7"}, stream=True)
    assert rpc.next()["chunk"] == "x\n"
    rpc.send(id=1, type="abort_bash")
    both = {message["command"]: message for message in (rpc.response(), rpc.response())}
    assert both["call"]["data"]["content"] == "x\n[cancelled]"


def test_many_at_once_are_neither_lost_nor_mixed(rpc: Rpc) -> None:
    for i in range(100):
        rpc.send(id=i, type="bash", command=f"sleep 0.1; echo {i}", stream=False)
    found = {}
    for _ in range(100):
        message = rpc.response()
        found[message["id"]] = message["data"]["output"]
    assert found == {i: f"{i}\n" for i in range(100)}


def test_the_run_verbs(rpc: Rpc) -> None:
    given = {"command": 'echo up; read -r x; echo "got $x"', "interactive": True}
    run = rpc.ask(type="call", arguments=given)["details"]["run"]
    (listed,) = rpc.ask(type="ps")
    assert (listed["run"], listed["state"]) == (run, "running")
    assert rpc.ask(type="wait", run=run, timeout=0.1)["state"] == "running"
    part = rpc.ask(type="read", run=run)
    assert (part["text"], part["cursor"], part["over"]) == ("up\n", 3, False)
    rpc.ask(type="write", run=run, text="line\n")
    ended = rpc.ask(type="wait", run=run)
    assert (ended["state"], ended["exit_code"]) == ("exited", 0)
    part = rpc.ask(type="read", run=run, since=part["cursor"])
    assert (part["text"], part["over"]) == ("got line\n", True)
    assert rpc.ask(type="read", run=run, lines=1)["text"] == "got line\n"

    run = rpc.ask(type="call", arguments={"command": "sleep 71.8", "wait": 0})["details"]["run"]
    rpc.send(id="w", type="wait", run=run)
    assert rpc.ask(type="kill", run=run, signal="STOP")["state"] == "running"
    rpc.send(id="k", type="kill", run=run, grace=0.2)
    both = {message["id"]: message["data"]["state"] for message in (rpc.response(), rpc.response())}
    assert both == {"w": "killed", "k": "killed"}

    assert "there is no run r99" in rpc.refused(type="read", run="r99")
    assert "there is no run r99" in rpc.refused(type="kill", run="r99")
    assert "has ended" in rpc.refused(type="write", run=run, text="x")
    assert "exclude each other" in rpc.refused(type="read", run=run, lines=1, since=0)
    assert "from is 0" in rpc.refused(type="read", run=run, **{"from": 0})
    assert "HURRY" in rpc.refused(type="kill", run=run, signal="HURRY")
    assert rpc.ask(type="ps", cwd="/") == []
    assert len(rpc.ask(type="ps", cwd="/", all=True)) == 2


def test_what_was_handed_back_outlives_the_server(tmp_path: Path) -> None:
    rpc = Rpc(cwd=tmp_path)
    run = rpc.ask(type="call", arguments={"command": "sleep 71.9", "wait": 0})["details"]["run"]
    assert rpc.end() == (0, "")
    rpc = Rpc(cwd=tmp_path)
    assert rpc.ask(type="kill", run=run)["state"] == "killed"
    assert rpc.end() == (0, "")


def test_schema_and_ping(rpc: Rpc) -> None:
    formats: tuple[Format, ...] = ("anthropic", "openai", "mcp")
    for format in formats:
        with nacre.Tool("pi", options={"async": True}) as tool:
            told = rpc.ask(type="schema", contract="pi", options={"async": True}, format=format)
            assert told == tool.specs(format)
    assert "Invalid enum value 'x'" in rpc.refused(type="schema", format="x")


def test_the_end_of_input_ends_what_runs_but_not_what_is_about_to_end(tmp_path: Path) -> None:
    rpc = Rpc(cwd=tmp_path)
    rpc.send(id="quick", type="bash", command="sleep 0.2; echo done", stream=False)
    rpc.send(id="slow", type="bash", command="trap '' HUP; sleep 72.1", stream=False)
    rpc.send(id="wait", type="call", arguments={"command": "sleep 72.2", "wait": 60})
    rpc._in.close()
    said = {}
    for _ in range(3):
        message = rpc.next()
        said[message["id"]] = message["data"]
    assert said["quick"]["output"] == "done\n"
    assert said["slow"]["cancelled"]
    assert said["wait"]["details"]["state"] == "cancelled"
    assert rpc.end() == (0, "")
    assert named("sleep 72.1") + named("sleep 72.2") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all_and_another_kills(tmp_path: Path, number: int) -> None:
    rpc = Rpc(cwd=tmp_path)
    rpc.send(type="bash", command="trap '' TERM; echo up; while :; do sleep 0.1; done #72.3")
    assert rpc.next()["chunk"] == "up\n"
    began = time.monotonic()
    rpc.process.send_signal(number)
    time.sleep(0.3)
    rpc.process.send_signal(number)
    assert rpc.response()["data"]["cancelled"]
    assert rpc.end() == (128 + number, "")
    assert time.monotonic() - began < 4  # the grace would be five seconds
    assert named("#72.3") == []


def test_the_server_ends_with_all_its_runs_when_its_stdout_is_closed(tmp_path: Path) -> None:
    rpc = Rpc(cwd=tmp_path)
    rpc.send(type="bash", command="yes 72.4")
    rpc.next()
    rpc._out.close()
    assert rpc.process.wait(20) == 141
    rpc._in.close()
    assert rpc.process.stderr is not None
    rpc.process.stderr.close()
    assert named("yes 72.4") == []


def test_a_shell_that_is_made_for_the_next_command_is_not_left_by_this_one(rpc: Rpc) -> None:
    for _ in range(100):
        assert rpc.ask(type="bash", command="x=5; pwd").get("leftRunning", []) == []


def test_a_command_cannot_get_at_the_wire(rpc: Rpc) -> None:
    script = "readlink /proc/self/fd/0; ls /proc/self/fd | wc -l; cat; echo '{' > /dev/stderr"
    assert rpc.ask(type="bash", command=script)["output"] == "/dev/null\n4\n{\n"
    said = rpc.ask(type="bash", command="cd /proc/$PPID/fd || exit; readlink 0")["output"]
    if os.getuid():  # without root, the server's descriptors cannot even be listed
        assert "Permission denied" in said
    else:  # root sees /dev/null in the place of the server's stdin
        assert said == "/dev/null\n"
    assert rpc.ask(type="ping")  # the client has received no stray line


def test_a_server_hides_its_descriptors_from_its_user() -> None:
    """Check the dumpable flag directly. The test above detects a dumpable server only without
    root."""
    code = (
        "import ctypes; from nacre.frontends.private_stdio import make_stdio_private;"
        "make_stdio_private();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert said.stdout == "0\n"


def test_no_name_of_a_tool_leads_to_the_users_own_commands(rpc: Rpc) -> None:
    given = {"contract": "pi", "options": {"intercept": "block"}, "tools": ["read"]}
    data = rpc.ask(type="call", tool="!", arguments={"command": "cat f"}, **given)
    assert data["content"][0]["text"] == "there is no tool '!' in this contract; it has bash"
    with nacre.Tool() as tool:
        replies: list[nacre.Reply] = []
        tool.begin({"command": "true"}, replies.append, by_user=True)
    assert "a user's own commands are pi's" in replies[0].text


def test_a_slow_reader_gets_every_answer_after_the_end_of_input(tmp_path: Path) -> None:
    rpc = Rpc(cwd=tmp_path)
    for number in range(1500):
        rpc.send(id=number, type="schema")
    rpc._in.close()
    time.sleep(1.5)
    assert [rpc.next()["id"] for _ in range(1500)] == list(range(1500))
    assert rpc.end() == (0, "")


def test_reading_byte_by_byte_breaks_no_character(rpc: Rpc) -> None:
    run = rpc.ask(type="bash", command="printf 'aéé€'", stream=False)["run"]
    said, cursor, over = "", 0, False
    while not over:
        part = rpc.ask(type="read", run=run, since=cursor, most=4)
        said, cursor, over = said + part["text"], part["cursor"], part["over"]
    assert said == "aéé€"


def test_the_server_closes_unused_tools(tmp_path: Path) -> None:
    rpc = Rpc(cwd=tmp_path, descriptors=160)  # each open tool holds some descriptors
    rpc.send(id="slow", type="bash", command="sleep 60")
    for number in range(90):
        (tmp_path / str(number)).mkdir()
        rpc.ask(type="call", contract="harness", arguments={"command": "true"}, cwd=str(number))
    assert rpc.end() == (0, "")


def test_what_a_command_that_is_ended_says_too_fast_is_counted(rpc: Rpc) -> None:
    rpc.send(id=1, type="bash", command="yes 12345678", timeout=1.5)
    time.sleep(2.5)  # the client reads nothing during this time
    heard = skipped = 0
    while (message := rpc.next())["type"] == "bash_output":
        heard += len(message["chunk"])
        skipped += message.get("skipped", 0)
    assert heard + skipped == message["data"]["totalBytes"]


def test_the_directory_of_the_server_may_go(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    rpc = Rpc(cwd=tmp_path / "gone")
    rpc.ask(type="ping")
    (tmp_path / "gone").rmdir()
    assert rpc.ask(type="bash", command="pwd", cwd="/")["output"] == "/\n"
    data = rpc.ask(type="bash", command="pwd")
    assert data["output"] == f"{tmp_path}\n"
    assert data["annotation"] == (
        f"the session's directory {tmp_path}/gone cannot be entered; this call starts from "
        f"{tmp_path}"
    )
    assert "does not exist" in rpc.refused(type="bash", command="pwd", cwd=f"{tmp_path}/gone")
    assert rpc.ask(type="ps")
    given = {"command": "pwd"}
    said = rpc.ask(type="call", contract="harness", cwd="~nobody-at-all", arguments=given)
    assert "does not exist" in said["error"]
    assert rpc.end() == (0, "")


def test_a_file_can_be_the_input(tmp_path: Path) -> None:
    # After the end of input, running commands have one more second. A busy machine may need longer
    # than that to start bash, so the test sets 30 seconds.
    code = (
        "from nacre.frontends.rpc.server import Server;"
        "from nacre.frontends.cli.main import main;"
        "Server.__init__.__kwdefaults__['linger'] = 30; raise SystemExit(main(['rpc']))"
    )
    (tmp_path / "in").write_text('{"type": "ping"}\n{"type": "bash", "command": "echo x"}')
    with (tmp_path / "in").open() as source:
        said = subprocess.run(
            [sys.executable, "-c", code],
            stdin=source,
            capture_output=True,
            cwd=tmp_path,
            timeout=50,
        )
    assert [json.loads(line)["type"] for line in said.stdout.splitlines()] == [
        "ready",
        "response",
        "bash_output",
        "response",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--mode", "rpc"],
        ["--mode=rpc", "--provider", "x", "--model", "y", "--session-dir", "z"],
        ["rpc", "--mode", "rpc"],
        ["--cwd", "/usr", "--mode", "rpc"],
    ],
)
def test_mode_rpc_is_the_command_rpc(words: list[str]) -> None:
    message = '{"id": "1", "type": "bash", "command": "pwd", "stream": false}'
    done = run_nacre(*words, stdin=message.encode())
    ready, response = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, done.stderr, ready) == (0, "", {"type": "ready"})
    assert response["data"]["output"] == f"{'/usr' if '--cwd' in words else Path.cwd()}\n"


def test_mode_has_no_other_value() -> None:
    for words in (["--mode", "json"], ["rpc", "--mode", "json"], ["--mode"]):
        done = run_nacre(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "argument --mode: " in done.stderr


def test_a_python_program_serves_rpc_with_resolvers(tmp_path: Path) -> None:
    (tmp_path / "lint").write_text("run ruff\n")
    code = (
        "import sys\n"
        "from nacre.frontends.rpc.serve import serve_rpc\n"
        f"skill = lambda rest: {str(tmp_path)!r} + '/' + rest\n"
        "sys.exit(serve_rpc('pi', options={'async': True}, resolvers={'skill': skill}))"
    )
    messages = [
        {"id": 1, "type": "call", "arguments": {"command": "cat skill://lint"}},
        {"id": 2, "type": "bash", "command": "echo skill://lint", "stream": False},
        {"id": 3, "type": "call", "contract": "harness", "arguments": {"command": "echo hi"}},
    ]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="\n".join(map(json.dumps, messages)),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=50,
    )
    said = {each.get("id"): each for each in map(json.loads, done.stdout.splitlines())}
    assert (done.returncode, done.stderr) == (0, "")
    assert said[1]["data"]["content"][0]["text"].startswith("run ruff\n")
    assert said[2]["data"]["output"] == "skill://lint\n"  # a command of the user runs as given
    assert said[3]["data"]["stdout"] == "hi\n"


def test_options_that_cannot_be_are_said_at_once() -> None:
    for words, problem in (
        (["--contract", "x"], "there is no contract 'x'"),
        (["--set", "x=1"], "no option"),
        (["--set", "x"], "has no value"),
        (["--cwd", "/nowhere"], "--cwd /nowhere is not a directory"),
    ):
        said = subprocess.run(
            [PROGRAM, "rpc", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert (said.returncode, said.stdout) == (2, "")
        assert problem in said.stderr


def test_killed_with_kill_its_commands_in_the_warden_go_on(tmp_path: Path) -> None:
    rpc = Rpc(cwd=tmp_path)
    rpc.send(id=1, type="call", arguments={"command": "echo x; sleep 72.5"}, stream=True)
    rpc.next()
    rpc.process.kill()
    rpc.process.wait()
    with nacre.Tool(cwd=tmp_path) as tool:
        (run,) = tool.runs()
        assert run.state == "running"
        run.end()
    eventually(lambda: not alive(rpc.process.pid))
    for stream in (rpc._in, rpc._out, rpc.process.stderr):
        assert stream is not None
        stream.close()
