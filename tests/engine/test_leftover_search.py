"""Tests that a leftover process is reported with its arguments, even during its execve(2)."""

import os
import subprocess
from pathlib import Path

import pytest

from nacre.engine import leftover_search
from nacre.engine.engine import Engine
from nacre.model.outcome import Outcome, Survivor
from nacre.model.plan import Command, LeftoverPolicy, Plan
from nacre.procfs import processes
from tests.support.helpers import alive, end, eventually

SECONDS = f"98767.{os.getpid():07d}"
SCRIPT = f"sleep {SECONDS} >/dev/null 2>&1 &".encode()


def run(policy: LeftoverPolicy) -> Outcome:
    command = Command(original=SCRIPT, script=SCRIPT, cwd=os.fsencode(Path.cwd()))
    return Engine().start(Plan(command=command, leftovers=policy)).wait()


def reported(outcome: Outcome) -> Survivor:
    (found,) = outcome.left_running or outcome.terminated
    return found


@pytest.mark.parametrize("policy", LeftoverPolicy)
def test_a_process_inside_execve_is_waited_for(
    policy: LeftoverPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def is_starting(pid: int) -> bool:
        looks.append(pid)
        return len(looks) < 20 or processes.command_line(pid) != f"sleep {SECONDS}"

    monkeypatch.setattr(processes, "is_starting", is_starting)
    monkeypatch.setattr(leftover_search, "_MAX_EXEC", 30.0)
    outcome = run(policy)
    assert reported(outcome).command == f"sleep {SECONDS}"
    assert len(looks) >= 20
    end(outcome.left_running)


@pytest.mark.parametrize("policy", LeftoverPolicy)
def test_the_wait_for_such_a_process_is_bounded(
    policy: LeftoverPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "is_starting", lambda _: True)
    outcome = run(policy)
    assert reported(outcome).pid
    end(outcome.left_running)


def test_a_zombie_has_no_arguments_and_is_not_starting() -> None:
    child = subprocess.Popen(["true"])
    eventually(lambda: not alive(child.pid))
    assert processes.command_line(child.pid) == "[true]"
    assert not processes.is_starting(child.pid)
    child.wait()
