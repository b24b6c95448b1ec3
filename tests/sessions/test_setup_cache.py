"""Tests of `SetupCache`: when the user's set-up is read, and how often."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nacre.model.plan import Command, Plan, Session
from nacre.sessions.setup_cache import BEING_READ, SetupCache
from nacre.sessions.worker_thread import Worker
from nacre.store import setup_snapshots


class _Jobs(Worker):
    """Worker that only queues its jobs, so that the test can run a job at a chosen moment."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)


def test_a_read_that_ends_while_it_is_looked_for_is_not_done_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    command = Command(original=b"", script=b"", cwd=bytes(tmp_path), env={b"HOME": b"/nowhere"})
    session = Session(key="s", setup_signature="abc", cwd_when_decided=bytes(tmp_path))
    jobs = _Jobs()
    cache = SetupCache(lambda _: None, jobs)  # `run` does nothing, so the cache finds no set-up

    def ask() -> object:
        return cache.state(Plan(command=command, session=session), session)

    assert ask() is BEING_READ
    (job,) = jobs.waiting

    def load(_: str) -> None:
        job()  # the worker finishes while the cache looks for the snapshot

    with monkeypatch.context() as patch:
        patch.setattr(setup_snapshots, "load_snapshot", load)
        assert ask() is BEING_READ
    assert ask() is None
    assert jobs.waiting == [job]
