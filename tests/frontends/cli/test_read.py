"""Tests of `nacre read`: the output of a run, also while the run is still writing."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import PROGRAM, detach, run_nacre

pytestmark = pytest.mark.slow


def test_follow_shows_what_comes_until_the_end_and_not_our_own_words(tmp_path: Path) -> None:
    arguments = json.dumps(
        {"command": "for i in 1 2 3; do echo $i; sleep 0.2; done", "mode": "background"}
    )
    run_nacre("call", "--contract", "phoenix", arguments, cwd=tmp_path)
    followed = run_nacre("read", "r1", "--follow", cwd=tmp_path)
    assert followed.stdout == "1\n2\n3\n"
    assert followed.stderr.startswith("r1: exit 0 after ")
    assert run_nacre("read", "1", "-f", "--lines", "1", cwd=tmp_path).stdout == "3\n"
    assert run_nacre("read", "1", "--from", "2", "--to", "3", cwd=tmp_path).stdout == "2\n3\n"
    assert run_nacre("read", "1", "--grep", "[23]", cwd=tmp_path).stdout == "2:2\n3:3\n"
    wrong = run_nacre("read", "1", "-f", "--grep", "x", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")


def test_follow_begins_with_the_last_lines_however_long_it_is(tmp_path: Path) -> None:
    run_nacre("run", "--contract", "phoenix", "--", "seq 400000", cwd=tmp_path)
    followed = run_nacre("read", "1", "--follow", "-n", "2", cwd=tmp_path)
    assert followed.stdout == "399999\n400000\n"


def test_follow_ends_when_its_stdout_is_closed(tmp_path: Path) -> None:
    run = detach(tmp_path, "echo one; sleep 300.448")
    said = subprocess.run(
        ["bash", "-c", f"'{PROGRAM}' read {run} --follow | head -1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert said.stdout == "one\n"
    run_nacre("kill", run, cwd=tmp_path)


def test_what_stands_on_stderr_is_not_hidden(tmp_path: Path) -> None:
    words = ("run", "--contract", "harness", "--", "nosuchcmd")
    assert run_nacre(*words, cwd=tmp_path).returncode == 127
    read = run_nacre("read", "1", cwd=tmp_path)
    assert read.stdout == ""
    assert "on stderr: nacre read r1 --errors" in read.stderr
    assert "nosuchcmd: command not found" in run_nacre("read", "1", "--errors", cwd=tmp_path).stdout
    run = detach(tmp_path, "nosuchcmd")
    run_nacre("wait", run, cwd=tmp_path)
    assert "command not found" in run_nacre("read", run, cwd=tmp_path).stdout
