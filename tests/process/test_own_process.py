"""Tests of `process.own_process`: signals in processes that run nothing but nacre."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import wardens
from tests.support.command_line import detach
from tests.support.helpers import eventually, signal_another_thread

pytestmark = pytest.mark.slow

# The nacre program with a second thread, to which the test sends a signal.
PROGRAM = """
import runpy, threading, time
threading.Thread(target=time.sleep, args=(50,), daemon=True).start()
runpy.run_module("nacre", run_name="__main__", alter_sys=True)
"""
COMMAND = "touch begun; exec sleep 98761"
CALL = f'{{"command": "{COMMAND}"}}'


def start_call(cwd: Path) -> subprocess.Popen[bytes]:
    return start(["call", "--contract", "harness", CALL], cwd)


def start_run(cwd: Path) -> subprocess.Popen[bytes]:
    return start(["run", "--contract", "harness", "--json", "--", COMMAND], cwd)


def start_rpc(cwd: Path) -> subprocess.Popen[bytes]:
    program = start(["rpc"], cwd)
    assert program.stdin is not None
    program.stdin.write(f'{{"type": "bash", "command": "{COMMAND}"}}\n'.encode())
    program.stdin.flush()
    return program


def start_wait(cwd: Path) -> subprocess.Popen[bytes]:
    program = start(["wait", detach(cwd, COMMAND)], cwd)
    eventually(lambda: "anon_inode:[eventpoll]" in open_files(program.pid))
    return program


def open_files(pid: int) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # the descriptor has been closed since the listing
            found.append(str(each.readlink()))
    return found


def start_warden(cwd: Path) -> subprocess.Popen[bytes]:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    program = start(["warden", "--ready", str(writing)], cwd)
    os.close(writing)
    assert os.read(reading, 1) == b"1"
    os.close(reading)
    (cwd / "begun").touch()
    return program


def start(words: list[str], cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        close_fds=False,
    )


@pytest.mark.parametrize(
    ("start", "number", "status"),
    [
        (start_call, signal.SIGTERM, 0),
        (start_run, signal.SIGTERM, 143),
        (start_rpc, signal.SIGTERM, 143),
        (start_wait, signal.SIGINT, 130),
        (start_warden, signal.SIGTERM, 0),
    ],
)
def test_a_signal_that_does_not_interrupt_the_wait_is_handled_at_once(
    start: Callable[[Path], subprocess.Popen[bytes]],
    number: int,
    status: int,
    tmp_path: Path,
    home: Path,
) -> None:
    with start(tmp_path) as program:
        try:
            eventually((tmp_path / "begun").exists)
            signal_another_thread(program.pid, number)
            assert program.wait(15) == status
        finally:
            program.kill()
            wardens.end(home, runs=True)  # also ends the run that `nacre wait` waits for
