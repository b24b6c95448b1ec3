"""Every row of the case table, through every front."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre import proc
from nacre.process import tag
from nacre.process.tree import send
from tests import wardens
from tests.contracts import table
from tests.contracts.table import Case
from tests.helpers import alive, eventually, named

NACRE = Path(sys.executable).parent / "nacre"


def arguments(case: Case) -> Any:
    return json.loads(case["json"]) if "json" in case else case["arguments"]


ROWS = [(contract, case) for contract in table.contracts() for case in table.cases(contract)]
# The command line takes nothing but an object; test_cli says what it does with the rest.
OBJECTS = [(contract, case) for contract, case in ROWS if isinstance(arguments(case), dict)]


def parametrized(rows: list[tuple[str, Case]]) -> pytest.MarkDecorator:
    named_rows = [
        pytest.param(number, id=f"{contract}: {case['says'][:70]}")
        for number, (contract, case) in enumerate(rows)
    ]
    return pytest.mark.parametrize("number", named_rows)


class Place:
    """Where a row happens: its directories and variables, and what is looked at afterwards."""

    def __init__(self, root: Path, state: Path, contract: str, case: Case) -> None:
        self.root, self.state, self.contract, self.case = root, state, contract, case
        self.cwd = root / case.get("cwd", "")
        self.env = {
            "NACRE_HOME": str(state),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            **case.get("env", {}),
        }

    def prepare(self) -> None:
        self.root.mkdir(parents=True)
        for path, content in self.case.get("files", {}).items():
            (self.root / path).write_text(content)
        if "setup" in self.case:
            self._run(["bash", "-ec", self.case["setup"]])
        for command in self.case.get("before", []):
            self._run([str(NACRE), "call", "--contract", self.contract, _json(command=command)])

    def call(self) -> dict[str, Any]:
        """Through the command line."""
        case = self.case
        words = [str(NACRE), "call", "--contract", self.contract, "--cwd", str(self.cwd)]
        words += ["--tool", case.get("tool", "bash"), "--tools", ",".join(case.get("tools", ()))]
        for key, value in case.get("options", {}).items():
            words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        done = self._run([*words, "-"], json.dumps(arguments(case)))
        assert done.stderr == ""
        printed: dict[str, Any] = json.loads(done.stdout)
        return printed

    def _run(self, words: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.root,
            env={**os.environ, **self.env},
            input=stdin,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def compare(self, said: dict[str, Any]) -> None:
        case = self.case
        if "reply" in case:
            assert said == self._filled(case["reply"])
        else:
            assert sorted(said) == ["content", "details", "is_error"]
            text = table.settled(said["content"])
            if "matches" in case:
                assert re.fullmatch(self._filled(case["matches"]), text, re.DOTALL), text
            else:
                assert text == self._filled(case["text"])
            assert said["is_error"] is case.get("is_error", False)
            if "details" in case:
                assert table.settled_details(said["details"]) == self._filled(case["details"])
        for path, content in case.get("made", {}).items():
            assert (self.root / path).read_text() == content
        for path, content in case.get("eventually", {}).items():
            file = Path(self._filled(path))
            eventually(partial(_has, file, content))
        for path in case.get("not_made", []):
            assert not (self.root / path).exists()
        for command in case.get("gone", []):
            assert named(command) == []

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            for name, path in (("$TMP", self.root), ("$CWD", self.cwd), ("$STATE", self.state)):
                value = value.replace(name, str(path))
            value = None if value == "NULL" else value
        elif isinstance(value, dict):
            value = {key: self._filled(each) for key, each in value.items()}
        return value


def _has(file: Path, content: str) -> bool:
    return file.read_text() == content


def _json(**arguments: Any) -> str:
    return json.dumps(arguments)


@parametrized(ROWS)
def test_library(
    number: int, tmp_path: Path, home: Path, ours: tag.Tag, monkeypatch: pytest.MonkeyPatch
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
        reply = tool.call(arguments(case), tool=case.get("tool", "bash"))
        place.compare(tool.contract.printed(reply))
    if case.get("leaves"):
        wardens.end(home, runs=True)


@parametrized(OBJECTS)
def test_command_line(number: int, called: list[tuple[Place, dict[str, Any]]]) -> None:
    place, said = called[number]
    place.compare(said)


@pytest.fixture(scope="module")
def called(
    tmp_path_factory: pytest.TempPathFactory, ours: tag.Tag
) -> Iterator[list[tuple[Place, dict[str, Any]]]]:
    """What the command line says to each row. Most of it is waiting for Python to start, so
    several are called at once."""

    rows = tmp_path_factory.mktemp("rows")

    def call(number: int) -> tuple[Place, dict[str, Any]]:
        root = rows / str(number)
        place = Place(root / "place", root / "state", *OBJECTS[number])
        place.prepare()
        return place, place.call()

    with Ended({"leaves": True}, ours):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(call, range(len(OBJECTS))))
        yield found
        wardens.end(rows, runs=True)


class Ended:
    """Ends what rows leave running on purpose, known by our own tag and by identity."""

    def __init__(self, case: Case, ours: tag.Tag) -> None:
        self._leaves = case.get("leaves", False)
        self._ours = ours

    def __enter__(self) -> None:
        self._before = self._found() if self._leaves else {}

    def __exit__(self, *exception: object) -> None:
        for identity, each in self._found().items() if self._leaves else ():
            if identity not in self._before:
                send(each, signal.SIGKILL)
                eventually(lambda pid=each.pid: not alive(pid))  # type: ignore[misc]

    def _found(self) -> dict[tuple[int, int], proc.Process]:
        return {
            (each.pid, each.started): each
            for each in proc.everyone().values()
            if each.alive
            and each.pid != os.getpid()
            and self._ours.covers(proc.soft_locks(each.pid))
        }


def test_there_are_enough_rows_and_each_says_something_of_its_own() -> None:
    assert len(ROWS) >= 150
    for contract in table.contracts():
        said = [case["says"] for case in table.cases(contract)]
        assert len(said) == len(set(said)), contract


@pytest.mark.parametrize("contract", table.contracts())
def test_what_is_shown_elsewhere_is_shown_there(contract: str) -> None:
    for section in table.sections(contract):
        for each in section.get("elsewhere", []):
            path, _, name = each["test"].partition("::")
            names = {
                node.name
                for node in ast.walk(ast.parse((table.ROOT / path).read_text()))
                if isinstance(node, ast.FunctionDef)
            }
            assert name in names, each["test"]
