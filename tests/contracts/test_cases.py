"""Tests that run every row of the case table through the library and every front end."""

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from nacre.process import run_tag
from nacre.process.process_tree import send_signal
from nacre.procfs import processes
from tests.support import case_table, wardens
from tests.support.case_table import Case
from tests.support.contract_rows import FRONTS, ROWS, Place, rows_of
from tests.support.helpers import alive, eventually


def parametrized(rows: list[tuple[str, Case]]) -> pytest.MarkDecorator:
    named_rows = [
        pytest.param(number, id=f"{contract}: {case['says'][:70]}")
        for number, (contract, case) in enumerate(rows)
    ]
    return pytest.mark.parametrize("number", named_rows)


@pytest.mark.slow
@parametrized(ROWS)
def test_library(
    number: int, tmp_path: Path, home: Path, ours: run_tag.Tag, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract, case = ROWS[number]
    place = Place(tmp_path / "place", home, contract, case)
    place.prepare()
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)
    with (
        Ended(case, ours),
        nacre.Tool(
            contract, cwd=place.cwd, tools=case.get("tools", ()), options=case.get("options", {})
        ) as tool,
    ):
        cancel = nacre.CancelToken()
        place.call_off_by(cancel.cancel)
        reply = tool.call(place.arguments, tool=case.get("tool", "bash"), cancel=cancel)
        place.compare(tool.contract.to_json(reply))
    if case.get("leaves"):
        wardens.end(home, runs=True)


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=pytest.mark.xdist_group(f"rows: {each}")) for each in FRONTS],
)
def front(request: pytest.FixtureRequest) -> str:
    """Return the name of a front end. Under xdist one worker runs all rows of a front end."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def answered(
    front: str, tmp_path_factory: pytest.TempPathFactory, ours: run_tag.Tag
) -> Iterator[Path]:
    """Return the directory with the answers of this front end; see `contract_rows`."""
    place = tmp_path_factory.mktemp("rows")
    with Ended({"leaves": True}, ours):
        words = [sys.executable, "-m", "tests.support.contract_rows", front, str(place)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        yield place
        wardens.end(place, runs=True)


@pytest.mark.slow
@pytest.mark.limit(240)
@pytest.mark.parametrize("contract", case_table.contracts())
def test_the_same_through(front: str, contract: str, answered: Path) -> None:
    """Check all answers of a contract in one test. One test for each row would be slower, because
    the leak check takes longer than the check of an answer."""
    wrong = {}
    for number, (name, case) in enumerate(rows_of(front)):
        try:
            if name == contract:
                answer(answered / str(number), name, case)
        except AssertionError as error:
            wrong[case["says"]] = str(error)
    assert not wrong, "\n\n".join(f"{says}\n{why}" for says, why in wrong.items())


def answer(root: Path, contract: str, case: Case) -> None:
    trouble = root / "trouble"
    assert not trouble.exists(), trouble.read_text()
    place = Place(root / "place", root / "state", contract, case)
    said = json.loads((root / "said.json").read_bytes())
    if said is None:  # a cancelled call has no answer
        assert "cancel" in case
        place.look_around()
    else:
        place.compare(said)


class Ended:
    """Context manager that kills the processes which a row leaves running on purpose.

    The manager finds these processes by the tag of this test worker. It skips processes that
    existed before the row.
    """

    def __init__(self, case: Case, ours: run_tag.Tag) -> None:
        self._leaves = case.get("leaves", False)
        self._ours = ours

    def __enter__(self) -> None:
        self._before = self._found() if self._leaves else {}

    def __exit__(self, *exception: object) -> None:
        for identity, each in self._found().items() if self._leaves else ():
            if identity not in self._before:
                send_signal(each, signal.SIGKILL)
                eventually(lambda pid=each.pid: not alive(pid))  # type: ignore[misc]

    def _found(self) -> dict[tuple[int, int], processes.Process]:
        return {
            (each.pid, each.started): each
            for each in processes.read_all_processes().values()
            if each.alive
            and each.pid != os.getpid()
            and self._ours.includes(processes.soft_locks(each.pid))
        }


def test_there_are_enough_rows_and_each_says_something_of_its_own() -> None:
    assert len(ROWS) >= 150
    for contract in case_table.contracts():
        said = [case["says"] for case in case_table.cases(contract)]
        assert len(said) == len(set(said)), contract


@pytest.mark.parametrize("contract", case_table.contracts())
def test_what_is_shown_elsewhere_is_shown_there(contract: str) -> None:
    for section in case_table.sections(contract):
        for each in section.get("elsewhere", []):
            path, _, name = each["test"].partition("::")
            names = {
                node.name
                for node in ast.walk(ast.parse((case_table.ROOT / path).read_text()))
                if isinstance(node, ast.FunctionDef)
            }
            assert name in names, each["test"]
