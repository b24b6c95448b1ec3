"""Helpers for many tests: waiting for a condition, processes, signals, ports and memory."""

import ctypes
import os
import random
import resource
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from nacre.model.outcome import Survivor
from nacre.process.process_tree import send_signal
from nacre.procfs import processes
from nacre.procfs.processes import Process

PYTHON = shlex.quote(sys.executable)  # path of Python, quoted for a shell script


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until the condition is true; fail after `seconds`. On a very busy machine, starting
    Python can take ten seconds. An expensive condition, such as a search of all processes, is
    checked less often, so that it takes at most a fifth of a CPU."""
    deadline = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, "this never came true"
        time.sleep(max(0.005, 4 * (now - begun)))


def alive(pid: int) -> bool:
    process = processes.read_process(pid)
    return process is not None and process.alive


def has_exited(pid: int) -> bool:
    """Return whether a process is a zombie or absent. An exiting process may still have open files:
    the kernel closes them before the process becomes a zombie."""
    process = processes.read_process(pid)
    return process is None or process.state in "ZX"


def end(survivors: Iterable[Survivor]) -> None:
    """Kill processes that a test left running on purpose, and wait until they end. A process is
    killed only if its pid and its start time both match."""
    for survivor in survivors:
        process = processes.read_process(survivor.pid)
        if process is not None and process.started == survivor.started:
            send_signal(process, signal.SIGKILL)
            eventually(lambda pid=survivor.pid: not alive(pid))  # type: ignore[misc]


def named(marker: str) -> list[Process]:
    """Return the live processes whose command line contains this marker. This process is left out,
    and so are processes of other test workers and of other test runs."""
    return [
        each
        for each in processes.read_all_processes().values()
        if each.alive
        and each.pid != os.getpid()
        and marker in processes.command_line(each.pid)
        and not _is_foreign(each.pid)
    ]


def wait_for_file(name: str) -> str:
    """Return shell code that waits until a test creates this file in the directory of the command.
    Such a command does not depend on the speed of the machine, as a `sleep` would."""
    return f"until [ -e {name} ]; do sleep 0.05; done"


WAIT_FOR_GO = wait_for_file("go")
WORKER = "NACRE_TESTS"  # environment variable with the name of the test worker


def _is_foreign(pid: int) -> bool:
    """Return whether another test worker started this process. A process without the worker's
    variable counts as started by this worker, because a false match is better than a missed one."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except PermissionError:  # a process of another user
        return True
    except OSError:
        return False
    names = [each for each in variables if each.startswith(WORKER.encode() + b"=")]
    return bool(names) and os.fsencode(f"{WORKER}={os.environ[WORKER]}") not in names


def signal_another_thread(pid: int, number: int) -> None:
    """Send a signal to a thread of the child `pid` other than its main thread, while all threads of
    the child are blocked. The signal does not interrupt the main thread. The same happens in a race
    between a signal and the start of epoll_wait(2)."""
    threads = [int(each) for each in os.listdir(f"/proc/{pid}/task") if int(each) != pid]
    assert threads, "there is only the main thread"
    eventually(lambda: not _runs_within(pid, 0.1))
    assert ctypes.CDLL(None).tgkill(pid, threads[0], number) == 0


def _runs_within(pid: int, seconds: float) -> bool:
    """Return whether a thread of this process runs on a processor within `seconds`."""
    before = _context_switches(pid)
    time.sleep(seconds)
    return _context_switches(pid) != before


def _context_switches(pid: int) -> list[str]:
    files = sorted(Path(f"/proc/{pid}/task").glob("*/status"))
    return [line for each in files for line in each.read_text().splitlines() if "_ctxt_" in line]


def free_port(candidates: range | None = None) -> int:
    """Return a port on which no process listens. Without candidates, the kernel chooses the port.
    Candidates are tried in random order, because another test suite may run at the same time."""
    order = [0] if candidates is None else random.Random().sample(candidates, len(candidates))
    for each in order:
        with socket.socket() as probe:
            try:
                probe.bind(("", each))
            except OSError:
                continue
            port: int = probe.getsockname()[1]
            return port
    raise OSError(f"no port of {candidates} is free")


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
