"""Tests of `nacre call`: one tool call, with the reply printed as JSON."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import PROGRAM, run_nacre
from tests.support.helpers import eventually, named

pytestmark = pytest.mark.slow

SECONDS = f"98762.{os.getpid():07d}"


@pytest.mark.parametrize(
    ("words", "stdin", "code", "stdout"),
    [
        (
            ['{"command": "echo a; echo b >&2; exit 3"}'],
            b"",
            0,
            {"stdout": "a\n", "stderr": "b\n", "exitCode": 3},
        ),
        (
            ["-"],
            '{"command": "echo €"}'.encode(),
            0,
            {"stdout": "€\n", "stderr": "", "exitCode": 0},
        ),
        (['{"command": ""}'], b"", 0, {"error": "command is required"}),
        (
            ["--cwd", "/", '{"command": "pwd"}'],
            b"",
            0,
            {"stdout": "/\n", "stderr": "", "exitCode": 0},
        ),
        (
            ["--set", "timeout=0.2", '{"command": "sleep 60"}'],
            b"",
            0,
            {
                "error": "command timed out after 0.2 seconds",
                "stdout": "",
                "stderr": "",
            },
        ),
    ],
)
def test_call(words: list[str], stdin: bytes, code: int, stdout: object) -> None:
    said = run_nacre("call", "--contract", "harness", *words, stdin=stdin)
    assert (said.returncode, json.loads(said.stdout), said.stderr) == (code, stdout, "")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["[]"], "ARGUMENTS must be a JSON object"),
        (["nonsense"], "ARGUMENTS is not JSON"),
        (["[" * 100_000], "ARGUMENTS is not JSON"),
        (["--contract", "harnes", "{}"], "did you mean 'harness'?"),
        (["--contract", "pi", "--tool", "job", "{}"], "there is no tool 'job'; tools: bash"),
        (["--tool", "jobs", "{}"], "there is no tool 'jobs'; tools: bash, job"),
        (["--set", "timeuot=1", "{}"], "there is no option 'timeuot'; did you mean 'timeout'?"),
        (["--set", "timeout", "{}"], "--set timeout has no value; write --set timeout=VALUE"),
        (["--set", "timeout=soon", "{}"], "bad option: timeout must be a number, not a string"),
    ],
)
def test_call_that_cannot_be_understood(words: list[str], complaint: str) -> None:
    said = run_nacre("call", *words)
    assert said.returncode == 2
    assert said.stdout == ""
    assert complaint in said.stderr
    assert "Traceback" not in said.stderr


def test_a_call_that_is_terminated_answers_with_what_there_was(tmp_path: Path) -> None:
    started = tmp_path / "started"
    arguments = json.dumps({"command": f"echo on; touch {started}; sleep {SECONDS}"})
    with subprocess.Popen([PROGRAM, "call", arguments], stdout=subprocess.PIPE) as process:
        eventually(started.exists)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        said = json.loads(process.stdout.read())
    assert said["content"] == "on\n[cancelled]"
    assert said["details"]["state"] == "cancelled"
    assert named(SECONDS) == []


def test_without_a_locale_the_environment_is_still_unchanged() -> None:
    env = {"PATH": os.environ["PATH"], "NACRE_HOME": os.environ["NACRE_HOME"]}
    words = ["--contract", "harness", '{"command": "cat /proc/$$/environ; true"}']
    # If the path of the program contains a blank, the program is a script of sh. A script of sh
    # sets PWD, so the test starts the Python module instead.
    program = [sys.executable, "-m", "nacre"]
    said = subprocess.run([*program, "call", *words], env=env, capture_output=True, timeout=60)
    given = json.loads(said.stdout)["stdout"].rstrip("\0").split("\0")
    assert dict(each.split("=", 1) for each in given) == env
