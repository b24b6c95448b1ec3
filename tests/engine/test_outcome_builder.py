"""Test of the outcome of a run that never had a process."""

from pathlib import Path

from nacre.engine.engine import Engine
from nacre.model.outcome import NotStarted
from nacre.model.plan import Command, CompletionLine, Plan
from nacre.model.refusals import BadDirectory
from nacre.store.store import Store


def test_a_run_that_could_not_start_writes_no_completion_line(tmp_path: Path) -> None:
    command = Command(original=b"true", script=b"true", cwd=bytes(tmp_path / "gone"))
    line = CompletionLine(zero="done", exited="exit {}", killed="signal {}", error="{}")
    plan = Plan(command=command, completion_line=line)
    record = Store().new_record(plan, bytes(tmp_path))
    outcome = Engine().start(plan, record=record).wait()
    assert isinstance(outcome.ending, NotStarted)
    assert isinstance(outcome.ending.why, BadDirectory)
    assert outcome.stored
    assert outcome.output.size == 0
