"""Tests of the contract harness against its page, docs/contracts/harness.md."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.model.requests import StartRun
from nacre.process.process_tree import send_signal
from nacre.procfs import processes

MIB = 1024 * 1024
SUFFIX = "... (truncated)"


def call(arguments: Any, **options: Any) -> dict[str, Any]:
    with nacre.Tool("harness", options=options) as tool:
        reply = tool.call(arguments)
    assert json.loads(reply.text) == reply.details
    assert reply.is_error == ("error" in reply.details)
    return reply.details


def bash(command: str, **options: Any) -> dict[str, Any]:
    return call({"command": command}, **options)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo 'hello world'", {"stdout": "hello world\n", "stderr": "", "exitCode": 0}),
        ("echo a; echo b >&2; exit 3", {"stdout": "a\n", "stderr": "b\n", "exitCode": 3}),
        ("printf 'a\\nb\\nc\\n' | grep b | wc -l", {"stdout": "1\n", "stderr": "", "exitCode": 0}),
        (
            "kill -9 $$",
            {"stdout": "", "stderr": "", "exitCode": 137, "signal": "SIGKILL"},
        ),
        ("exit 137", {"stdout": "", "stderr": "", "exitCode": 137}),
        ("kill -34 $$", {"stdout": "", "stderr": "", "exitCode": 162, "signal": "SIGRTMIN"}),
        ("kill -40 $$", {"stdout": "", "stderr": "", "exitCode": 168, "signal": "SIGRTMIN+6"}),
        ("printf '\\xff'", {"stdout": "\ufffd", "stderr": "", "exitCode": 0}),
        ("echo $0; cat", {"stdout": "/bin/bash\n", "stderr": "", "exitCode": 0}),
        ("exit 127", {"stdout": "", "stderr": "", "exitCode": 127}),
        ("echo mine >&2; exit 127", {"stdout": "", "stderr": "mine\n", "exitCode": 127}),
        ("echo mine >&2; exit 126", {"stdout": "", "stderr": "mine\n", "exitCode": 126}),
        (
            "nosuch_x 2>/dev/null; exit 127",
            {"stdout": "", "stderr": "", "exitCode": 127},
        ),
        (
            "nosuch_x; echo later >&2; exit 127",
            {
                "stdout": "",
                "stderr": "/bin/bash: line 1: nosuch_x: command not found\nlater\n",
                "exitCode": 127,
            },
        ),
    ],
)
def test_replies(command: str, said: dict[str, Any]) -> None:
    assert bash(command) == said


@pytest.mark.parametrize(
    ("command", "error", "code"),
    [
        ("nosuch_x", "command not found: nosuch_x", 127),
        ("echo before; nosuch_x", "command not found: nosuch_x", 127),
        ("true\n\nnosuch_x a b", "command not found: nosuch_x", 127),
        ("/nonexistent/x", "command not found: /nonexistent/x", 127),
        ("exec nosuch_x", "command not found: nosuch_x", 127),
        ("nosuch:x", "command not found: nosuch:x", 127),
        ("'no such x'", "command not found: no such x", 127),
        ("''", "command not found: ''", 127),
        ("/", "permission denied: /", 126),
        ("/etc/passwd", "permission denied: /etc/passwd", 126),
    ],
)
def test_bash_could_not_run_it(command: str, error: str, code: int) -> None:
    said = bash(command)
    assert said["error"] == error
    assert "exitCode" not in said
    assert bash(f"( {command} ); echo $?")["stdout"].endswith(f"{code}\n")
    assert said["stderr"].startswith("/bin/bash: ")
    assert said["stdout"] == ("before\n" if "before" in command else "")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("set -u; echo $NOT_SET_AT_ALL", 127),
        ("echo ${NOT_SET_AT_ALL:?must be set}", 127),
        ("wait 999999", 127),
        ("cd /nope || exit 126", 126),
        ("cd /nope || exit 127", 127),
        ("kill -0 999999 || exit 127", 127),
    ],
)
def test_what_bash_did_find_is_an_ordinary_reply(command: str, code: int) -> None:
    said = bash(command)
    assert "error" not in said
    assert said["exitCode"] == code


def test_not_found_inside_a_function() -> None:
    assert bash("f() { nosuch_x; }; f")["error"] == "command not found: nosuch_x"


@pytest.mark.parametrize("command", ["-x; echo hi", "--help; echo hi", "+e; echo hi"])
def test_a_command_that_looks_like_an_option_is_a_command(command: str) -> None:
    said = bash(command)
    assert said["stdout"] == "hi\n"
    assert said["exitCode"] == 0


def test_a_script_whose_interpreter_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/nonexistent/interpreter\n")
    script.chmod(0o755)
    assert bash(str(script))["error"] in (
        f"command not found: {script}",
        f"permission denied: {script}",  # bash before 5.2 exits with code 126
    )


def test_not_found_after_more_stderr_than_is_kept() -> None:
    said = bash("head -c 3000000 /dev/zero | tr '\\0' e >&2; echo >&2; nosuch_x")
    assert said["error"] == "command not found: nosuch_x"
    assert said["stderr"].endswith("e" + SUFFIX)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "command is required"),
        ({"command": ""}, "command is required"),
        ({"command": " \n\t"}, "command is required"),
        ({"command": None}, "command must be a string, not null"),
        ({"command": 5}, "command must be a string, not 5"),
        ({"command": ["ls"]}, 'command must be a string, not ["ls"]'),
        (
            {"command": "ls", "timeout": 5},
            "there is no argument timeout (given: 5); this tool takes command",
        ),
        ([], "arguments must be a JSON object, not []"),
        ("ls", 'arguments must be a JSON object, not "ls"'),
        (None, "arguments must be a JSON object, not null"),
        (7, "arguments must be a JSON object, not 7"),
        ({"command": "a\0b"}, "command contains a NUL byte; remove it"),
        (
            {"command": "a\ud800b"},
            "command contains '\\ud800', which is no character; remove it",
        ),
    ],
)
def test_arguments_that_cannot_be_understood(arguments: Any, error: str) -> None:
    assert call(arguments) == {"error": error}


def test_an_unknown_tool() -> None:
    with nacre.Tool("harness") as tool:
        assert tool.call({"command": "ls"}, tool="job").details == {
            "error": "there is no tool 'job' in this contract; it has bash"
        }


def test_the_limit_is_thirty_seconds_and_two_of_grace() -> None:
    with nacre.Tool("harness") as tool:
        caller = tool._caller_factory.at(b"/")
        ask = tool.contract.admit("bash", {"command": "ls"}, caller).request
    assert isinstance(ask, StartRun)
    plan = ask.plan
    assert (plan.limits.timeout, plan.limits.grace) == (30.0, 2.0)


def test_a_timeout_keeps_what_was_captured() -> None:
    said = bash("echo out; echo err >&2; sleep 60", timeout=1.5)
    assert said == {
        "error": "command timed out after 1.5 seconds",
        "stdout": "out\n",
        "stderr": "err\n",
    }


def test_the_words_of_a_timeout() -> None:
    assert bash("sleep 60", timeout=1)["error"] == "command timed out after 1 second"


def test_cancelled_before_it_started() -> None:
    token = nacre.CancelToken()
    token.cancel()
    with nacre.Tool("harness") as tool:
        assert tool.call({"command": "ls"}, cancel=token).details == {"error": "command cancelled"}


@pytest.mark.parametrize("extra", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_each_stream_holds_one_mib_suffix_included(stream: str, extra: int) -> None:
    size = MIB - 2 + extra
    redirect = " >&2" if stream == "stderr" else ""
    said = bash(f"head -c {size} /dev/zero | tr '\\0' x{redirect}")
    if size <= MIB:
        assert said[stream] == "x" * size
    else:
        assert said[stream] == "x" * (MIB - len(SUFFIX)) + SUFFIX


@pytest.mark.parametrize("shift", range(4))
def test_a_character_is_never_cut(shift: int) -> None:
    said = bash(f"printf '%{shift + 1}s'; yes 🦪 | head -c 3000000")["stdout"]
    body = said.removesuffix(SUFFIX)
    assert said.endswith(SUFFIX)
    assert "\ufffd" not in body
    assert MIB - 3 <= len(said.encode()) <= MIB


def test_spawn_failures_are_a_sentence(tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path / "a" / "b") as tool:
        assert tool.call({"command": "ls"}).details == {
            "error": f"cwd {tmp_path}/a/b does not exist; {tmp_path} does"
        }
    file = tmp_path / "file"
    file.touch()
    with nacre.Tool("harness", cwd=file) as tool:
        assert tool.call({"command": "ls"}).details == {
            "error": f"cwd {file} is not a directory; {tmp_path} is"
        }


def test_background_work_returns_at_once() -> None:
    with nacre.Tool("harness") as tool:
        reply = tool.call({"command": "sleep 97 & echo hi; echo $! >&2"})
    left = processes.read_process(int(reply.details["stderr"]))
    assert left is not None
    send_signal(left, signal.SIGKILL)
    assert reply.details["stdout"] == "hi\n"
    assert reply.details["exitCode"] == 0


def test_every_call_is_in_the_log_and_no_output_ever(home: Path) -> None:
    workspace = Path(__file__).parents[2]
    with nacre.Tool("harness", cwd=workspace / "tests") as tool:
        tool.call({"command": "echo SECRET_OUTPUT$((1)); exit 3"})
        tool.call({"command": ""})
        tool.call({"command": "a\ud800"})
        tool.call({"command": "kill -9 $$"})
        asyncio.run(tool.acall({"command": "echo ünï >&2"}))
    text = (home / "audit.jsonl").read_text()
    first, blank, odd, killed, last = (json.loads(line) for line in text.splitlines())
    assert {key: first[key] for key in first if key not in ("time", "seconds", "cwd")} == {
        "contract": "harness",
        "tool": "bash",
        "workspace": str(workspace),
        "command": "echo SECRET_OUTPUT$((1)); exit 3",
        "run": "r1",
        "decision": "run",
        "ending": "Exited",
        "exit_code": 3,
        "stdout_bytes": 15,
        "stderr_bytes": 0,
        "left_running": 0,
    }
    assert blank["refused"] == "command is required"
    assert odd["command"] == "a\ud800"
    assert (killed["ending"], killed["exit_code"]) == ("Killed", 137)
    assert (last["command"], last["stderr_bytes"]) == ("echo ünï >&2", 6)
    assert "SECRET_OUTPUT1" not in text


def test_the_log_is_private(home: Path) -> None:
    with nacre.Tool("harness") as tool:
        tool.call({"command": "true"})
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_the_audit_log_is_created_again_after_its_removal(home: Path) -> None:
    with nacre.Tool("harness") as tool:
        tool.call({"command": "true"})
        (home / "audit.jsonl").unlink()
        tool.call({"command": "false"})
    assert '"exit_code":1' in (home / "audit.jsonl").read_text()


def test_the_schema() -> None:
    with nacre.Tool("harness") as tool:
        (spec,) = tool.specs()
        assert spec == {
            "name": "bash",
            "description": "Execute a bash command and return stdout/stderr",
            "input_schema": {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "The bash command to execute"}
                },
                "required": ["command"],
                "additionalProperties": False,
            },
            "strict": True,
        }
        (mcp,) = tool.specs(format="mcp")
        assert mcp["inputSchema"] == spec["input_schema"]
        (openai,) = tool.specs(format="openai")
        assert openai["function"]["parameters"] == spec["input_schema"]
