"""Every test proves that nothing was left behind: descriptors, threads, processes, files."""

import gc
import os
import resource
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from nacre import proc
from nacre.engine import leftovers
from nacre.process import tag
from nacre.process.worn import worn
from tests import wardens

settings.register_profile("nacre", deadline=None, derandomize=True)
settings.load_profile("nacre")


@pytest.fixture(autouse=True, scope="session")
def ours() -> Iterator[tag.Tag]:
    """A tag for these tests themselves: whatever they start, however far away, is known by it."""
    mine = tag.new()
    assert mine is not None
    hard = resource.getrlimit(proc.RLIMIT_LOCKS)[1]
    with worn(((proc.RLIMIT_LOCKS, mine.value, hard),)):
        yield mine


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """Whoever has started us in the background has us, and all that we start, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hundreds of tests start a Python; compiling us each time takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nobody's own set-up: sessions would begin with it, and it may take its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("user")))
        yield


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and temporary files of each test in a place of its own."""
    state, temporary = tmp_path / "state", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("NACRE_HOME", str(state))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return state


@pytest.fixture(autouse=True)
def nothing_left_behind(ours: tag.Tag, home: Path, tmp_path: Path) -> Iterator[None]:
    leftovers.sweep()
    descriptors, threads, processes = _descriptors(), _threads(), _processes(ours)
    yield
    left: dict[str, Callable[[], set[object]]] = {
        "descriptors": lambda: _descriptors() - descriptors,
        "threads": lambda: _threads() - threads,
        "processes": lambda: _processes(ours) - processes,
        "runs in the warden": lambda: {*_hosted(home)},
        "files": lambda: {*(tmp_path / "temporary").iterdir()},
    }
    try:
        for kind, look in left.items():
            assert not _settled(look), f"this test left {kind} behind: {look()}"
    finally:
        if _had_warden(home):
            wardens.end(home.parent)


def _had_warden(home: Path) -> bool:
    """Looking at every process takes its time, and few tests start one."""
    return home.exists() and next(home.rglob("warden.lock"), None) is not None


def _hosted(home: Path) -> list[tuple[int, int, str]]:
    """Shells that wait for the next command of a session go with their warden."""
    if not _had_warden(home):
        return []
    return [each for each in wardens.children(home.parent) if "_nacre_in=" not in each[2]]


def _settled(look: Callable[[], set[object]]) -> set[object]:
    """What is still there after those had a moment that are just going."""
    for turn in range(100):
        leftovers.sweep()
        if not look():
            return set()
        if not turn:
            gc.collect()  # it takes as long as most tests, so only when something is there
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


def _processes(ours: tag.Tag) -> set[object]:
    """Our children, zombies included, and everybody who was started by one of our runs."""
    return {
        (each.pid, each.started, proc.command_line(each.pid))
        for each in proc.everyone().values()
        if each.parent == os.getpid()
        or (each.alive and each.pid != os.getpid() and ours.covers(proc.soft_locks(each.pid)))
    }
