"""Tests of `nacre kill`, which ends the whole process tree of a run."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command_line import detach, run_nacre
from tests.support.helpers import eventually, named

pytestmark = pytest.mark.slow


def test_kill_gives_a_grace_and_then_insists(tmp_path: Path) -> None:
    run = detach(tmp_path, "trap '' TERM; setsid -f sleep 300.444; while :; do sleep 0.05; done")
    eventually(lambda: named("300.444"))
    begin = time.monotonic()
    said = run_nacre("kill", run, "--grace", "0.3", cwd=tmp_path)
    assert said.returncode == 0
    assert said.stderr.startswith("r1: SIGKILL after ")
    assert time.monotonic() - begin < 10
    assert not named("300.444")


def test_kill_with_a_signal_only_sends_it(tmp_path: Path) -> None:
    script = (
        "exec 2>/dev/null; trap 'echo usr1; exit 0' USR1; echo up; while :; do sleep 0.05; done"
    )
    run = detach(tmp_path, script)
    eventually(lambda: run_nacre("read", run, cwd=tmp_path).stdout == "up\n")
    assert run_nacre("kill", run, "--signal", "SIGUSR1", cwd=tmp_path).returncode == 0
    assert run_nacre("wait", run, cwd=tmp_path).returncode == 0
    assert run_nacre("read", run, cwd=tmp_path).stdout == "up\nusr1\n"
    wrong = run_nacre("kill", run, "--signal", "NOPE", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "there is no signal 'NOPE'" in wrong.stderr


def test_kill_reaches_a_run_inside_another_program(tmp_path: Path) -> None:
    """No warden owns the run, so `nacre kill` finds the run's processes by their run tag."""
    host = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import nacre; print(nacre.Tool('harness').call("
            "{'command': 'echo in; sleep 300.445'}).details)",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: "running" in run_nacre("ps", cwd=tmp_path).stdout)
    write = run_nacre("write", "1", "x", cwd=tmp_path)
    assert "runs in another program" in write.stderr
    assert run_nacre("wait", "1", "--timeout", "0.2", cwd=tmp_path).returncode == 124
    assert run_nacre("kill", "1", cwd=tmp_path).returncode == 0
    said, _ = host.communicate(timeout=20)
    assert "'signal': 'SIGTERM'" in said
    assert not named("300.445")
