"""Every row of the case table, through every front."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre import proc
from nacre.process import tag
from nacre.process.tree import send
from tests.contracts import table
from tests.contracts.table import Case
from tests.helpers import alive, eventually, named

NACRE = Path(sys.executable).parent / "nacre"
Front = Callable[[str, Case, Path], dict[str, Any]]


def through_library(contract: str, case: Case, cwd: Path) -> dict[str, Any]:
    with nacre.Tool(
        contract, cwd=cwd, tools=case.get("tools", ()), options=case.get("options", {})
    ) as tool:
        reply = tool.call(_arguments(case), tool=case.get("tool", "bash"))
        return tool.contract.printed(reply)


def through_command_line(contract: str, case: Case, cwd: Path) -> dict[str, Any]:
    words = [str(NACRE), "call", "--contract", contract, "--cwd", str(cwd), "--tool"]
    words += [case.get("tool", "bash"), "--tools", ",".join(case.get("tools", ()))]
    for key, value in case.get("options", {}).items():
        words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    done = subprocess.run(
        [*words, "-"],
        input=json.dumps(_arguments(case)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def _arguments(case: Case) -> Any:
    return json.loads(case["json"]) if "json" in case else case["arguments"]


def _rows(*, objects_only: bool) -> list[Any]:
    return [
        pytest.param(contract, case, id=f"{contract}: {case['says'][:70]}")
        for contract in table.contracts()
        for case in table.cases(contract)
        if not objects_only or isinstance(_arguments(case), dict)
    ]


@pytest.mark.parametrize(("contract", "case"), _rows(objects_only=False))
def test_library(contract: str, case: Case, place: "Place") -> None:
    place.show(through_library, contract, case)


# The command line takes nothing but an object; test_cli says what it does with the rest.
@pytest.mark.parametrize(("contract", "case"), _rows(objects_only=True))
def test_command_line(contract: str, case: Case, place: "Place") -> None:
    place.show(through_command_line, contract, case)


class Place:
    """Where a row happens: its directories and variables, and what is looked at afterwards."""

    def __init__(self, root: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.state = state
        self._monkeypatch = monkeypatch

    def show(self, front: Front, contract: str, case: Case) -> None:
        cwd = self._prepare(contract, case)
        said = front(contract, case, cwd)
        self._compare(case, said, cwd)
        for path, content in case.get("made", {}).items():
            assert (self.root / path).read_text() == content
        for path in case.get("not_made", []):
            assert not (self.root / path).exists()
        for command in case.get("gone", []):
            assert named(command) == []

    def _prepare(self, contract: str, case: Case) -> Path:
        for name, value in case.get("env", {}).items():
            self._monkeypatch.setenv(name, value)
        for path, content in case.get("files", {}).items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(content)
        if "setup" in case:
            subprocess.run(
                ["bash", "-ec", case["setup"]],
                cwd=self.root,
                check=True,
                capture_output=True,
                timeout=60,
            )
        for command in case.get("before", []):
            with nacre.Tool(contract, cwd=self.root) as tool:
                tool.call({"command": command})
        return self.root / case.get("cwd", "")

    def _compare(self, case: Case, said: dict[str, Any], cwd: Path) -> None:
        def filled(value: Any) -> Any:
            if isinstance(value, str):
                for name, path in (("$TMP", self.root), ("$CWD", cwd), ("$STATE", self.state)):
                    value = value.replace(name, str(path))
            elif isinstance(value, dict):
                value = {key: filled(each) for key, each in value.items()}
            return value

        if "reply" in case:
            assert said == filled(case["reply"])
            return
        assert sorted(said) == ["content", "details", "is_error"]
        text = table.settled(said["content"])
        if "matches" in case:
            assert re.fullmatch(filled(case["matches"]), text, re.DOTALL), text
        else:
            assert text == filled(case["text"])
        assert said["is_error"] is case.get("is_error", False)
        if "details" in case:
            assert table.settled_details(said["details"]) == filled(case["details"])


@pytest.fixture
def place(
    tmp_path: Path, home: Path, ours: tag.Tag, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    root = tmp_path / "place"
    root.mkdir()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.delenv("MY_TOKEN", raising=False)
    before = _started_by(ours)
    yield Place(root, home, monkeypatch)
    # What a row leaves running on purpose, known by our own tag and by identity.
    for identity, each in _started_by(ours).items():
        if identity not in before:
            send(each, signal.SIGKILL)
            eventually(lambda pid=each.pid: not alive(pid))  # type: ignore[misc]


def _started_by(ours: tag.Tag) -> dict[tuple[int, int], proc.Process]:
    return {
        (each.pid, each.started): each
        for each in proc.everyone().values()
        if each.alive and each.pid != os.getpid() and ours.covers(proc.soft_locks(each.pid))
    }


def test_there_are_enough_rows_and_each_says_something_of_its_own() -> None:
    rows = [(contract, case) for contract in table.contracts() for case in table.cases(contract)]
    assert len(rows) >= 150
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
