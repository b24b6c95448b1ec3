"""Tests of the error messages that `nacre read`, `wait`, `kill`, `attach` and `write` share."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import PROGRAM, run_nacre
from tests.support.helpers import eventually

pytestmark = pytest.mark.slow


def test_a_run_of_another_workspace_is_named_with_its_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    run_nacre("run", "--", "echo x", cwd=tmp_path / "a")
    said = run_nacre("read", "1", cwd=tmp_path / "b")
    assert said.returncode == 1
    assert f"it belongs to {tmp_path / 'a'}" in said.stderr
    assert run_nacre("read", "1", "--cwd", str(tmp_path / "a"), cwd=tmp_path).stdout == "x\n"


@pytest.mark.parametrize("words", [["read"], ["wait"], ["kill"], ["attach"], ["write", "x"]])
def test_what_is_no_run_is_said(words: list[str], tmp_path: Path) -> None:
    said = run_nacre(words[0], "bogus", *words[1:], cwd=tmp_path)
    assert said.returncode == 1
    assert "is not a run id; write 17" in said.stderr
    assert "Traceback" not in said.stderr


def test_the_whole_story_from_the_command_line(tmp_path: Path) -> None:
    """Start a run by a call, kill the calling program, then list, read and stop the run."""
    arguments = json.dumps({"command": "echo up; sleep 300.447", "mode": "background"})
    caller = subprocess.Popen(
        [PROGRAM, "call", "--contract", "phoenix", arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert caller.stdout is not None
    reply = json.loads(caller.stdout.readline())
    caller.kill()
    caller.communicate()
    file = Path(reply["details"]["output_file"])
    eventually(lambda: file.read_text() == "up\n")
    assert "running" in run_nacre("ps", cwd=tmp_path).stdout
    assert run_nacre("read", "1", cwd=tmp_path).stdout == "up\n"
    pid = reply["details"]["pid"]
    os.killpg(pid, signal.SIGKILL)  # the reminder in the reply recommends this kill
    eventually(lambda: file.read_text().endswith("]\n"))
    assert file.read_text() == "up\n\n\n[background process failed: signal 9 (SIGKILL)]\n"
    assert "SIGKILL" in run_nacre("ps", cwd=tmp_path).stdout
