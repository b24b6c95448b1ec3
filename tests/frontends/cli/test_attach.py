"""Tests of `nacre attach`, which brings a run into the foreground."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import PROGRAM, detach, run_nacre
from tests.support.helpers import named

pytestmark = pytest.mark.slow


def test_attach_shows_everything_passes_input_on_and_exits_with_its_code(tmp_path: Path) -> None:
    run = detach(tmp_path, "echo hello; read x; echo got $x; exit 6", "--interactive")
    attached = subprocess.run(
        [PROGRAM, "attach", run],
        cwd=tmp_path,
        input="there\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (attached.stdout, attached.returncode) == ("hello\ngot there\n", 6)
    assert attached.stderr.startswith("r1: exit 6 after ")


def test_ctrl_c_lets_go_and_the_run_goes_on(tmp_path: Path) -> None:
    run = detach(tmp_path, "echo on; sleep 300.446")
    attached = subprocess.Popen(
        [PROGRAM, "attach", run],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert attached.stdout is not None
    assert attached.stdout.readline() == "on\n"
    attached.send_signal(signal.SIGINT)
    _, said = attached.communicate(timeout=10)
    assert attached.returncode == 130
    assert "r1 is still running" in said
    assert named("300.446")
    run_nacre("kill", run, cwd=tmp_path)
