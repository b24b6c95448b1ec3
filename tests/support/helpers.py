"""What tests need again and again."""

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

PYTHON = shlex.quote(sys.executable)  # in a script


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for a condition; fail when it does not come true. Starting Python takes ten seconds on a
    machine that is busy enough."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this never came true"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    process = processes.read_process(pid)
    return process is not None and process.alive


def has_exited(pid: int) -> bool:
    """Whether it is a zombie, or gone. One that is not alive may still have its files open: the
    kernel closes them on its way to a zombie."""
    process = processes.read_process(pid)
    return process is None or process.state in "ZX"


def end(survivors: Iterable[Survivor]) -> None:
    """Kill what a test left running on purpose, by identity, and see it gone."""
    for survivor in survivors:
        process = processes.read_process(survivor.pid)
        if process is not None and process.started == survivor.started:
            send_signal(process, signal.SIGKILL)
            eventually(lambda pid=survivor.pid: not alive(pid))  # type: ignore[misc]


def named(marker: str) -> list[Process]:
    """Living processes whose command line has this marker in it, ourselves not counted, nor those
    of other workers and of other runs of the suite."""
    return [
        each
        for each in processes.read_all_processes().values()
        if each.alive
        and each.pid != os.getpid()
        and marker in processes.command_line(each.pid)
        and not _is_foreign(each.pid)
    ]


WORKER = "NACRE_TESTS"  # the variable that has the name of the worker


def _is_foreign(pid: int) -> bool:
    """Whether another worker has started this process. One without any variables counts as ours: it
    is better to find one too many."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except PermissionError:  # another user's
        return True
    except OSError:
        return False
    names = [each for each in variables if each.startswith(WORKER.encode() + b"=")]
    return bool(names) and os.fsencode(f"{WORKER}={os.environ[WORKER]}") not in names


def signal_another_thread(pid: int, number: int) -> None:
    """Send a signal to a thread of our child `pid` that is not its main thread, while both are
    blocked. The main thread is not interrupted, as in the race between a signal and the beginning
    of epoll_wait(2)."""
    threads = [int(each) for each in os.listdir(f"/proc/{pid}/task") if int(each) != pid]
    assert threads, "there is only the main thread"
    eventually(lambda: not _runs_within(pid, 0.1))
    assert ctypes.CDLL(None).tgkill(pid, threads[0], number) == 0


def _runs_within(pid: int, seconds: float) -> bool:
    """Whether a thread of this process gets a processor in that time."""
    before = _context_switches(pid)
    time.sleep(seconds)
    return _context_switches(pid) != before


def _context_switches(pid: int) -> list[str]:
    files = sorted(Path(f"/proc/{pid}/task").glob("*/status"))
    return [line for each in files for line in each.read_text().splitlines() if "_ctxt_" in line]


def free_port(candidates: range | None = None) -> int:
    """A port on which nothing listens; the kernel chooses it, unless there are candidates. Those
    are tried in random order, since another suite may run beside this one."""
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
    """How many bytes of memory we have."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
