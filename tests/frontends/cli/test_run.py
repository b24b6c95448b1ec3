"""Tests of `nacre run`, as a user or a script calls it."""

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import time

import pytest

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
        (["--"], 2, "", "nacre: no command was given; write: nacre run -- COMMAND\n"),
        (["--timeout", "x", "true"], 2, "", "nacre: --timeout x is not a number of seconds\n"),
        (
            ["--timeout", "-1", "true"],
            2,
            "",
            "nacre: --timeout -1 is out of range; give 0 for no limit, or more\n",
        ),
        (
            ["--timeout", "1", "--", "echo early; sleep 60"],
            124,
            "early\n",
            "nacre: the command timed out after 1 s and was stopped\n",
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
    os.kill(left.pid, signal.SIGKILL)  # leftover process of this test, alive until now
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
    words = [PROGRAM, "run", "--contract", "phoenix", "--", script]  # grace: 15 seconds
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


def test_a_timeout_applies_although_the_output_is_not_read() -> None:
    with subprocess.Popen(
        [PROGRAM, "run", "--timeout", "1", "--", f"yes; : {SECONDS}"], stdout=subprocess.PIPE
    ):
        eventually(lambda: len(named(f"yes; : {SECONDS}")) == 2)
        eventually(lambda: len(named(f"yes; : {SECONDS}")) == 1)  # only `nacre run` is left


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_nacre_run_although_its_stdout_pipe_is_full(number: signal.Signals) -> None:
    readable, writable = os.pipe()
    process = subprocess.Popen([PROGRAM, "run", "--timeout", "0", "--", "yes"], stdout=writable)
    eventually(lambda: not select.select([], [writable], [], 0)[1])  # the stdout pipe is full
    os.close(writable)
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    os.close(readable)


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
