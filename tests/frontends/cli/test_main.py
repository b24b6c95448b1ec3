"""The command line, as a person or a script uses it."""

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nacre
from tests.support.command_line import PROGRAM, run_nacre
from tests.support.helpers import eventually, named

pytestmark = pytest.mark.slow

SECONDS = f"98762.{os.getpid():07d}"


@pytest.mark.parametrize(
    ("words", "code", "stdout", "stderr"),
    [
        (["--", "echo hi; echo err >&2; exit 4"], 4, "hi\nerr\n", ""),
        (["--contract", "harness", "--", "echo hi; echo err >&2; exit 4"], 4, "hi\n", "err\n"),
        (["echo", "a  b", "$HOME"], 0, "a  b $HOME\n", ""),
        (["--", "echo", "--json"], 0, "--json\n", ""),
        (["--", "kill -9 $$"], 137, "", ""),
        (["--", "exit 137"], 137, "", ""),
        (["--cwd", "/", "--", "pwd"], 0, "/\n", ""),
        (["--cwd", "/nope", "--", "pwd"], 125, "", "nacre: cwd /nope does not exist; / does\n"),
        (["--", " "], 125, "", "nacre: command is required\n"),
        (["--"], 2, "", "nacre: what shall run? Write: nacre run -- COMMAND\n"),
        (["--timeout", "x", "true"], 2, "", "nacre: --timeout x is not a number of seconds\n"),
        (
            ["--timeout", "-1", "true"],
            2,
            "",
            "nacre: --timeout -1 cannot be; it is 0 for no limit, or more\n",
        ),
        (
            ["--timeout", "0.3", "--", "echo early; sleep 60"],
            124,
            "early\n",
            "nacre: the command timed out after 0.3 s and was stopped\n",
        ),
        (["--timeout", "0", "--", "echo fine"], 0, "fine\n", ""),
    ],
)
def test_run(words: list[str], code: int, stdout: str, stderr: str) -> None:
    said = run_nacre("run", *words)
    assert (said.returncode, said.stdout, said.stderr) == (code, stdout, stderr)


def test_run_as_json() -> None:
    words = ["--contract", "harness", "--json", "--", "printf 'a\\nb'; echo e >&2; exit 3"]
    said = json.loads(run_nacre("run", *words).stdout)
    assert said.pop("seconds") >= 0
    assert said == {
        "run": "r1",
        "ending": "exited",
        "exit_code": 3,
        "output": {"bytes": 3, "lines": 2, "text": "a\nb"},
        "errors": {"bytes": 2, "lines": 1, "text": "e\n"},
        "left_running": [],
    }


def test_run_says_what_was_left_running() -> None:
    said = run_nacre("run", "--", f"sleep {SECONDS} & echo done")
    (left,) = named(SECONDS)
    os.kill(left.pid, signal.SIGKILL)  # ours, and alive until now
    assert said.stdout == "done\n"
    assert said.stderr == f"[left running: {left.pid} sleep {SECONDS}]\n"


def test_run_streams_while_the_command_runs() -> None:
    with subprocess.Popen(
        [PROGRAM, "run", "--", "echo first; read x < <(sleep 60)"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_run_passes_a_stopping_signal_on_and_nothing_survives(number: signal.Signals) -> None:
    script = f"echo on; (setsid sleep {SECONDS} &); sleep {SECONDS} & sleep {SECONDS}"
    with subprocess.Popen([PROGRAM, "run", "--", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        eventually(lambda: len(named(SECONDS)) >= 4)
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert named(SECONDS) == []


def test_a_second_interrupt_does_not_wait_for_the_grace() -> None:
    script = "trap '' INT TERM; echo on; while :; do sleep 0.05; done"
    words = [PROGRAM, "run", "--contract", "phoenix", "--", script]  # a grace of 15 seconds
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 137
        assert time.monotonic() - began < 10


def test_run_passes_other_signals_on() -> None:
    script = "trap 'echo got; exit 6' USR1; echo on; while :; do sleep 0.05; done"
    with subprocess.Popen([PROGRAM, "run", "--", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        process.send_signal(signal.SIGUSR1)
        assert b"got\n" in process.stdout.read()
        assert process.wait(30) == 6


def test_a_reader_that_goes_away_ends_the_command_as_in_a_pipeline() -> None:
    script = f"{shlex.quote(PROGRAM)} run --timeout 0 -- yes | head -1; echo ${{PIPESTATUS[0]}}"
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert said.stdout == "y\n141\n"
    assert said.stderr == ""


def test_every_byte_reaches_a_slow_reader() -> None:
    script = f"{shlex.quote(PROGRAM)} run -- 'seq 300000' | (sleep 0.5; md5sum)"
    expected = "seq 300000 | md5sum"
    said = [
        subprocess.run(["bash", "-c", each], capture_output=True, text=True, timeout=60).stdout
        for each in (script, expected)
    ]
    assert said[0] == said[1]


def test_a_timeout_holds_although_nobody_reads_our_output() -> None:
    with subprocess.Popen(
        [PROGRAM, "run", "--timeout", "1", "--", f"yes; : {SECONDS}"], stdout=subprocess.PIPE
    ):
        eventually(lambda: len(named(f"yes; : {SECONDS}")) == 2)
        eventually(lambda: len(named(f"yes; : {SECONDS}")) == 1)  # only nacre, which still writes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stuck_reader_does_not_keep_us_from_stopping(number: signal.Signals) -> None:
    readable, writable = os.pipe()
    process = subprocess.Popen([PROGRAM, "run", "--timeout", "0", "--", "yes"], stdout=writable)
    eventually(lambda: not select.select([], [writable], [], 0)[1])  # the pipe is full
    os.close(writable)
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    os.close(readable)


@pytest.mark.parametrize(
    ("command", "code", "stdout"),
    [
        ("{} run 'echo hi; exit 7' 2>&-", 7, "hi\n"),
        ("{} run 'echo hi; exit 7' >&-", 7, ""),
        ("{} run 'echo hi; exit 7' <&- >&- 2>&-", 7, ""),
        ("{} run 'echo hi' >/dev/full", 1, ""),
        ("{} run 'echo hi; sleep 60' >/dev/full", 1, ""),
        ("{} run --json 'echo hi' >/dev/full", 1, ""),
        ("{} run 'echo hi; sleep 0.3 & exit 5' 2>/dev/full", 5, "hi\n"),
        ("{} run --timeout 0.2 'sleep 5' 2>/dev/full", 124, ""),
        ('{} call \'{{"command": "echo hi"}}\' >&-', 0, ""),
        ('{} call \'{{"command": "echo hi"}}\' >/dev/full', 1, ""),
        ("{} call - <&-", 2, ""),
        ("{} schema >/dev/full", 1, ""),
    ],
)
def test_closed_or_full_standard_descriptors(command: str, code: int, stdout: str) -> None:
    words = ["bash", "-c", command.format(shlex.quote(PROGRAM))]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout) == (code, stdout)
    assert "Traceback" not in said.stderr


def test_without_a_locale_the_environment_is_still_unchanged() -> None:
    env = {"PATH": os.environ["PATH"], "NACRE_HOME": os.environ["NACRE_HOME"]}
    words = ["--contract", "harness", '{"command": "cat /proc/$$/environ; true"}']
    said = subprocess.run([PROGRAM, "call", *words], env=env, capture_output=True, timeout=60)
    given = json.loads(said.stdout)["stdout"].rstrip("\0").split("\0")
    assert dict(each.split("=", 1) for each in given) == env


def test_progress_on_a_terminal_while_the_command_is_silent() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "run", "--", "sleep 4.5; echo out"], stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
    assert process.wait(30) == 0
    os.close(ours)
    assert b"still running; Ctrl-C stops it]" in shown
    assert shown.endswith(b"\r\x1b[Kout\r\n")


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
                "exitCode": 143,
                "signal": "SIGTERM",
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
        (["--contract", "pi", "--tool", "job", "{}"], "there is no tool 'job'; there is bash"),
        (["--tool", "jobs", "{}"], "there is no tool 'jobs'; there is bash, job"),
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


@pytest.mark.parametrize("format", ["anthropic", "openai", "mcp"])
def test_schema(format: str) -> None:
    said = run_nacre("schema", "--format", format)
    tools = json.loads(said.stdout)
    names = [tool.get("name") or tool["function"]["name"] for tool in tools]
    assert names == ["bash", "job"]


def test_schema_of_an_unknown_contract() -> None:
    said = run_nacre("schema", "--contract", "nope")
    assert said.returncode == 2
    assert "there is no contract 'nope'" in said.stderr


def test_doctor_says_one_line_each() -> None:
    said = run_nacre("doctor")
    lines = said.stdout.partition("\n\n")[0].splitlines()
    assert said.returncode == 0, said.stdout
    assert {line.split()[1] for line in lines} >= {"bash", "processes", "terminals", "sandbox"}


def test_doctor_names_the_remedy_for_what_is_missing() -> None:
    said = run_nacre("doctor", NACRE_HOME="/dev/null/nope")
    assert said.returncode == 1
    assert "set NACRE_HOME to a directory that can be written" in said.stdout


@pytest.mark.parametrize("module", [False, True])
def test_the_program_starts_by_both_of_its_names(module: bool) -> None:
    words = [sys.executable, "-m", "nacre"] if module else [PROGRAM]
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"nacre {nacre.__version__}\n"


STARTS: dict[str, tuple[str, str]] = {  # what each prints when it is really started
    "run": ("run -- echo hi", "hi\n"),
    "call": ("call --contract harness '{}'", '"error":"command is required"'),
    "schema": ("schema", '"name": "bash"'),
    "ps": ("ps", "COMMAND"),
    "read": ("read 1", "first\n"),
    "wait": ("wait 1; echo code $?", "code 0\n"),
    "write": ("write 1 x", "r1 has ended"),
    "kill": ("kill 1", "r1"),
    "attach": ("attach 1 </dev/null", "first\n"),
    "sessions": ("sessions", "no sessions in this workspace"),
    "log": ("log", "echo first"),
    "explain": ("explain ls", "would run"),
    "mcp": ("mcp </dev/null; echo code $?", "code 0\n"),
    "rpc": ('rpc <<< \'{"id": 1, "type": "ping"}\'', '"id":1'),
    "warden": ("warden --help", "usage: nacre warden"),
    "doctor": ("doctor", "bash"),
}


@pytest.mark.parametrize("command", STARTS)
def test_each_command_in_a_real_start_of_the_program(command: str, tmp_path: Path) -> None:
    """Other tests run them in forks of one interpreter, which has loaded more than they ask for."""
    run_nacre("run", "--", "echo first", cwd=tmp_path)
    words, expected = STARTS[command]
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1; {shlex.quote(PROGRAM)} {words}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert expected in done.stdout
    assert "Traceback" not in done.stdout


def test_no_command_is_missing_there() -> None:
    commands = re.findall(r"^    (\w+) ", run_nacre("--help").stdout, re.MULTILINE)
    assert set(STARTS) == set(commands)


def test_help_and_version() -> None:
    assert run_nacre("--version").stdout.startswith("nacre ")
    assert run_nacre().returncode == 2
    assert "doctor" in run_nacre("--help").stdout
