"""Leak check: a test fails if it leaves a descriptor, thread, process or file behind.

Each test worker sets a tag on itself. Every process that a test starts inherits this tag, in any
process group or session. A warden removes the tag from itself, so the check finds a warden by its
state directory. The check allows a moment for processes and threads that are just ending. Leftover
processes are then killed, so that they disturb no other test.
"""

import gc
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nacre.engine import leftover_pipes
from nacre.process import run_tag
from nacre.process.process_tree import send_signal
from nacre.process.rlimits import temporary_rlimits
from nacre.procfs import processes as proc
from nacre.procfs.processes import Process
from tests.support import wardens


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: needs a warden, sleeps or starts many programs")


@pytest.fixture(autouse=True, scope="session")
def ours() -> Iterator[run_tag.Tag]:
    """Set a tag on this worker. The tag is random, so that other workers and test runs differ."""
    mine = run_tag.new_tag()
    assert mine is not None
    hard = resource.getrlimit(proc.RLIMIT_LOCKS)[1]
    with temporary_rlimits(((proc.RLIMIT_LOCKS, mine.value, hard),)):
        yield mine


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a separate state directory and a separate temporary directory for each test."""
    state, temporary = tmp_path / "state", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("NACRE_HOME", str(state))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return state


@pytest.fixture(autouse=True)
def nothing_left_behind(
    ours: run_tag.Tag, home: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[None]:
    leftover_pipes.drain_parked()
    processes, descriptors, threads = _census.take(ours), _descriptors(), _threads()
    yield
    has_warden = _has_warden(home)
    left: dict[str, Callable[[], set[object]]] = {
        "descriptors": lambda: _descriptors() - descriptors,
        "threads": lambda: _threads() - threads,
        "processes": lambda: {
            (each.pid, proc.command_line(each.pid)) for each in _census.new(ours, processes)
        },
        "runs in the warden": lambda: {*(_runs_in_warden(home) if has_warden else ())},
        "files": lambda: {*(tmp_path / "temporary").iterdir()},
    }
    try:
        for kind, look in left.items():
            assert not _wait_until_empty(look), f"this test left {kind} behind: {look()}"
        slow = request.node.get_closest_marker("slow")
        assert slow or not has_warden, "this test starts a warden: mark it with pytest.mark.slow"
    finally:
        # Kill processes before wardens: one of the processes may be about to start a warden.
        for each in _census.new(ours, processes):
            send_signal(each, signal.SIGKILL)
        if _has_warden(home):
            wardens.end(home.parent)


def _has_warden(home: Path) -> bool:
    """Return whether this test has started a warden. Checking for the lock file is faster than
    reading every process, and few tests start a warden."""
    return home.exists() and next(home.rglob("warden.lock"), None) is not None


def _runs_in_warden(home: Path) -> list[tuple[int, int, str]]:
    """Return the children of wardens, except prewarmed shells, which end with their warden."""
    return [each for each in wardens.children(home.parent) if "_nacre_in=" not in each[2]]


def _wait_until_empty(look: Callable[[], set[object]]) -> set[object]:
    """Call `look` for up to two seconds until it finds nothing. Return what it found last."""
    for turn in range(100):
        leftover_pipes.drain_parked()
        if not look():
            return set()
        if not turn:
            gc.collect()  # only if something was found: a collection takes as long as most tests
        threading.Event().wait(0.02)
    return look()


def _descriptors() -> set[object]:
    found: set[object] = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
        except OSError:
            continue
    return found


def _threads() -> set[object]:
    return {*threading.enumerate()}


_Processes = dict[tuple[int, int], Process]  # the key is pid and start time


class _Census:
    """Cached list of this worker's children, even zombies, and of the processes that tests started.

    Reading every process takes as long as a small test. So the list is refreshed only if any
    program has started a process since the last refresh. A refresh skips the pids of unrelated
    processes that an earlier refresh found. After one second pids may have wrapped around, so the
    next refresh skips none.
    """

    def __init__(self) -> None:
        self._newest = proc.LastPid()
        self._found: _Processes = {}
        self._others: set[int] = set()
        self._pid: int | None = None
        self._when = 0.0

    def take(self, ours: run_tag.Tag) -> _Processes:
        """Return all current processes of this worker, and perhaps some that have ended."""
        newest, now = self._newest.read(), time.monotonic()
        if newest is None or now - self._when > 1:
            self._others, self._when = set(), now
        elif newest == self._pid:
            return self._found
        # The last pid was read before the scan, so that the next call finds a process that starts
        # during the scan.
        self._pid = newest
        self._found, others = {}, set()
        for pid in proc.list_pids():
            process = None if pid in self._others else proc.read_process(pid)
            if process is None:
                others.add(pid)
            elif process.parent == os.getpid() or _is_of(ours, process):
                self._found[pid, process.started] = process
            elif process.alive:
                others.add(pid)
        self._others = others
        return self._found

    def new(self, ours: run_tag.Tag, before: _Processes) -> list[Process]:
        """Return the processes that exist now and are not in `before`."""
        if self.take(ours).keys() <= before.keys():
            return []
        self._pid = None
        return [each for identity, each in self.take(ours).items() if identity not in before]


_census = _Census()


def _is_of(ours: run_tag.Tag, process: Process) -> bool:
    return (
        process.alive and process.pid != os.getpid() and ours.includes(proc.soft_locks(process.pid))
    )
