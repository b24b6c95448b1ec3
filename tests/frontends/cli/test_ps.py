"""Tests of `nacre ps`: the runs of a workspace, as a table and as JSON."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import PROGRAM, detach, run_nacre
from tests.support.helpers import eventually

pytestmark = pytest.mark.slow


def test_ps_is_a_table_with_all_that_one_wants_to_know(tmp_path: Path) -> None:
    assert run_nacre("ps", cwd=tmp_path).stdout.startswith("no runs in this workspace")
    run_nacre("run", "--", "seq 3; exit 3", cwd=tmp_path)
    run = detach(tmp_path, "echo hello; sleep 300.441")
    eventually(lambda: "6B" in run_nacre("ps", cwd=tmp_path).stdout)
    header, live, over = run_nacre("ps", cwd=tmp_path, COLUMNS="200").stdout.splitlines()
    assert header.split() == ["ID", "AGE", "STATE", "OUTPUT", "COMMAND", "DIRECTORY"]
    assert live.split()[0] == run
    assert live.split()[2:6] == ["running", "6B", "echo", "hello;"]
    assert live.endswith(str(tmp_path))
    assert over.split()[0] == "r1"
    assert over.split()[2:5] == ["exit", "3", "6B"]
    narrow = run_nacre("ps", cwd=tmp_path, COLUMNS="60").stdout.splitlines()
    assert max(map(len, narrow)) <= 75
    run_nacre("kill", run, cwd=tmp_path)
    assert "SIGTERM" in run_nacre("ps", cwd=tmp_path).stdout


def test_ps_as_json_and_of_all_workspaces(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run_nacre("run", "--", f"echo {name}", cwd=tmp_path / name)
    (only,) = json.loads(run_nacre("ps", "--json", cwd=tmp_path / "a").stdout)
    assert only["run"] == "r1"
    assert only["state"] == "exited"
    assert (only["exit_code"], only["output_bytes"]) == (0, 2)
    assert only["cwd"] == only["workspace"] == str(tmp_path / "a")
    everything = json.loads(run_nacre("ps", "--json", "--all", cwd=tmp_path).stdout)
    assert [each["run"] for each in everything] == ["r2", "r1"]
    assert len(run_nacre("ps", "--all", "-n", "1", cwd=tmp_path).stdout.splitlines()) == 2


def test_ps_watch_shows_it_again(tmp_path: Path) -> None:
    run_nacre("run", "--", "echo x", cwd=tmp_path)
    watch = subprocess.Popen(
        [PROGRAM, "ps", "--watch"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert watch.stdout is not None
    seen = [watch.stdout.readline().split()[0] for _ in range(4)]
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=10)
    assert seen == ["ID", "r1", "ID", "r1"]
    assert watch.returncode == 130
