"""Every test proves that nothing was left behind: descriptors, threads, processes, files."""

import gc
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from nacre import proc
from nacre.engine import leftovers
from nacre.process import tag

settings.register_profile("nacre", deadline=None, derandomize=True)
settings.load_profile("nacre")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and temporary files of each test in a place of its own."""
    state, temporary = tmp_path / "state", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("NACRE_HOME", str(state))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return state


@pytest.fixture(autouse=True)
def nothing_left_behind(home: Path, tmp_path: Path) -> Iterator[None]:
    del home  # its places must be there first
    leftovers.sweep()
    descriptors, threads, processes = _descriptors(), set(threading.enumerate()), _processes()
    yield
    gc.collect()
    left: dict[str, Callable[[], set[object]]] = {
        "descriptors": lambda: _descriptors() - descriptors,
        "threads": lambda: {*threading.enumerate()} - threads,
        "processes": lambda: _processes() - processes,
        "files": lambda: {*(tmp_path / "temporary").iterdir()},
    }
    for kind, look in left.items():
        assert not _settled(look), f"this test left {kind} behind: {look()}"


def _settled(look: Callable[[], set[object]]) -> set[object]:
    """What is still there after those had a moment that are just going."""
    for _ in range(100):
        leftovers.sweep()
        if not look():
            return set()
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


def _processes() -> set[object]:
    """Our children, zombies included, and everybody who carries a run's tag."""
    return {
        (each.pid, each.started, proc.command_line(each.pid))
        for each in proc.everyone().values()
        if each.parent == os.getpid()
        or (each.alive and tag.read(proc.soft_locks(each.pid)) is not None)
    }
