"""Tests of `nacre wait`, which exits with the exit code of a run."""

from pathlib import Path

import pytest

from tests.support.command_line import detach, run_nacre

pytestmark = pytest.mark.slow


def test_wait_exits_with_its_code(tmp_path: Path) -> None:
    run = detach(tmp_path, "until [ -e go ]; do sleep 0.02; done; exit 7")
    early = run_nacre("wait", run, "--timeout", "0.1", cwd=tmp_path)
    assert early.returncode == 124
    assert "still running" in early.stderr
    (tmp_path / "go").touch()
    done = run_nacre("wait", run, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.startswith("r1: exit 7 after ")
    assert run_nacre("wait", run, cwd=tmp_path).returncode == 7
    unknown = run_nacre("wait", "r99", cwd=tmp_path)
    assert unknown.returncode == 1
    assert "there is no run r99 in this workspace" in unknown.stderr
    assert "nacre ps" in unknown.stderr
