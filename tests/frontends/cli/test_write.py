"""Tests of `nacre write`, which writes to the stdin of a run."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.command_line import PROGRAM, detach, run_nacre, run_nacre_bytes
from tests.support.helpers import eventually

pytestmark = pytest.mark.slow


def test_write_reaches_its_stdin(tmp_path: Path) -> None:
    run = detach(tmp_path, "cat; echo end", "--interactive")
    assert run_nacre("write", run, "one", cwd=tmp_path).returncode == 0
    assert run_nacre("write", run, "--no-newline", "two", cwd=tmp_path).returncode == 0
    piped = subprocess.run(
        [PROGRAM, "write", run, "--eof"], cwd=tmp_path, input=b"three\xff", timeout=60
    )
    assert piped.returncode == 0
    run_nacre("wait", run, cwd=tmp_path)
    read = run_nacre_bytes("read", run, cwd=tmp_path)
    assert read.stdout == b"one\ntwothree\xffend\n"
    late = run_nacre("write", run, "x", cwd=tmp_path)
    assert late.returncode == 1
    assert "r1 has ended (exited)" in late.stderr


def test_write_to_one_that_has_no_stdin_says_so(tmp_path: Path) -> None:
    run = detach(tmp_path, "sleep 300.442")
    said = run_nacre("write", run, "x", cwd=tmp_path)
    assert said.returncode == 1
    assert "started without an open stdin" in said.stderr
    run_nacre("kill", run, cwd=tmp_path)


def test_a_pipe_into_write_waits_for_a_slow_reader_and_loses_nothing(tmp_path: Path) -> None:
    run = detach(tmp_path, "sleep 0.5; wc -c", "--interactive")
    piped = subprocess.run(
        [PROGRAM, "write", run, "--eof"], cwd=tmp_path, input=bytes(5 << 20), timeout=60
    )
    assert piped.returncode == 0
    run_nacre("wait", run, cwd=tmp_path)
    assert run_nacre("read", run, cwd=tmp_path).stdout == f"{5 << 20}\n"


def test_a_pipe_into_write_ends_with_its_run(tmp_path: Path) -> None:
    run = detach(tmp_path, "sleep 300.443", "--interactive")
    pipe = subprocess.Popen(
        [PROGRAM, "write", run], cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert pipe.stdin is not None
    assert pipe.stderr is not None
    os.set_blocking(pipe.stdin.fileno(), False)
    taken, taken_at = 0, time.monotonic()

    def feed() -> bool:
        """Write to the stdin of `nacre write`, and return whether `nacre write` has exited. The
        test keeps that stdin open, so `nacre write` exits without an EOF."""
        nonlocal taken, taken_at
        try:
            taken += os.write(pipe.stdin.fileno(), bytes(1 << 16))  # type: ignore[union-attr]
            taken_at = time.monotonic()
        except (BlockingIOError, BrokenPipeError):
            time.sleep(0.01)
        return pipe.poll() is not None

    # Wait until `nacre write` blocks: it has read more than a pipe holds, and then nothing for half
    # a second.
    eventually(lambda: feed() or (taken > 1 << 20 and time.monotonic() - taken_at > 0.5), 30)
    run_nacre("kill", run, cwd=tmp_path)
    eventually(feed, 30)
    assert pipe.returncode == 1
    # The second message appears if the kill came between two writes of `nacre write`.
    assert re.search(b"stdin of the run is closed|r1 has ended", pipe.stderr.read())
    pipe.stdin.close()
    pipe.stderr.close()
