"""Tests of `nacre explain`: verdicts for the tables of commands, output format, no execution."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nacre.frontends.cli.main import main
from tests.support.command_line import PROGRAM, run_nacre
from tests.support.explain import TOOLS, table


class Cli:
    """Runner of `nacre explain --json` in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *words: str) -> dict[str, Any]:
        assert main(["explain", "--json", *words]) == 0
        said: dict[str, Any] = json.loads(self._capfd.readouterr().out)
        return said


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capfd)


@pytest.mark.parametrize("row", table("safety"), ids=lambda row: row["command"])
@pytest.mark.parametrize("contract", ["nacre", "phoenix"])
def test_safety_table(cli: Cli, row: dict[str, Any], contract: str) -> None:
    said = cli("--contract", contract, row["command"])
    assert said["verdict"] == row["verdict"]
    assert (said["rule"] is not None) == (row["verdict"] == "refuse")
    assert (said["why"] is None) == (said["instead"] is None) == (said["rule"] is None)


@pytest.mark.parametrize("row", table("safety"), ids=lambda row: row["command"])
@pytest.mark.parametrize("contract", ["pi", "harness"])
def test_contracts_without_safety_let_everything_run(
    cli: Cli, row: dict[str, Any], contract: str
) -> None:
    assert cli("--contract", contract, row["command"])["verdict"] == "run"


@pytest.mark.parametrize("row", table("commits"), ids=lambda row: row["command"])
def test_commits_table(cli: Cli, row: dict[str, Any]) -> None:
    for contract in ("nacre", "phoenix", "pi"):
        said = cli("--contract", contract, row["command"])
        assert said["commits"] is row["commits"]
        trailed = "--trailer 'Co-authored-by: Phoenix <phoenix@exe.dev>'" in said["script"]
        assert trailed == (row["commits"] and contract == "phoenix")


@pytest.mark.parametrize("row", table("cd"), ids=lambda row: row["command"])
def test_cd_table(cli: Cli, row: dict[str, Any]) -> None:
    said = cli("--contract", "pi", row["command"])
    assert said["cwd"] == row["cwd"]
    assert said["script"] == (row["command"] if row["rest"] is None else row["rest"])
    assert cli("--contract", "phoenix", row["command"])["cwd"] is None


@pytest.mark.parametrize("row", table("interception"), ids=lambda row: row["command"])
def test_interception_table(cli: Cli, row: dict[str, Any]) -> None:
    for mode, verdict in (("off", "run"), ("warn", "run"), ("block", "refuse")):
        said = cli(
            *("--contract", "pi", "--tools", ",".join(TOOLS), "--set", f"intercept={mode}"),
            *("--cwd", "/", row["command"].removeprefix("cd p && ")),
        )
        assert (said["suggestion"] or {}).get("tool") == row["tool"]
        assert said["verdict"] == ("run" if row["tool"] is None else verdict)
    assert cli("--contract", "pi", row["command"])["suggestion"] is None


def test_the_whole_shape(cli: Cli) -> None:
    said = cli("--contract", "pi", "--tools", "read", 'cd / && cat etc/hosts "$x"; vim f')
    assert said == {
        "readable": True,
        "commands": [["cd", "/"], ["cat", "etc/hosts", None], ["vim", "f"]],
        "verdict": "run",
        "rule": None,
        "why": None,
        "instead": None,
        "commits": False,
        "cwd": None,
        "script": 'cd / && cat etc/hosts "$x"; vim f',
        "suggestion": {"tool": "read", "arguments": {"path": "etc/hosts"}},
        "needs_terminal": True,
    }


def test_a_refusal_names_rule_words_and_remedy(cli: Cli) -> None:
    said = cli("echo hi && sudo rm -rf /")
    assert said["rule"] == "disk.remove"
    assert said["why"] == "rm -rf / would remove / and everything in it"
    assert said["instead"] == "name the files or the subdirectory to remove"


def test_people_see_the_words_that_matched(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "echo é\nsudo rm -rf /"]) == 0
    lines = capfd.readouterr().out.split("\n")
    at = lines.index("  sudo rm -rf /")
    assert lines[at + 1] == "       ^^     ^"
    assert lines[0] == "would be refused, by disk.remove"


def test_what_people_see_cannot_move_their_cursor(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "echo '\x1b[2J\u202e' 日本 && rm -rf /"]) == 0
    said = capfd.readouterr().out
    assert all(each.isprintable() or each == "\n" for each in said)
    script, marks = said.split("\n")[2:4]
    assert len(marks) - 1 == len(script) - 1 + 2  # two characters of the script are twice as wide
    assert "  echo '\\x1b[2J\\x202e' '日本'" in said


def test_people_see_what_bash_would_get(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--contract", "pi", "cd /tmp && ls"]) == 0
    said = capfd.readouterr().out
    assert said.startswith("would run\n")
    assert "runs in /tmp, the target of its cd" in said
    assert said.endswith("bash would get\n  ls\n")


def test_nothing_is_run_not_even_a_substitution(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    command = (
        f"$(touch {mark}) `touch {mark}`; touch {mark} <(touch {mark}); trap 'touch {mark}' EXIT"
    )
    for contract in ("nacre", "phoenix", "pi", "harness"):
        done = run_nacre("explain", "--contract", contract, command)
        assert done.returncode == 0
    assert not mark.exists()


def test_stdin_and_a_reader_that_goes_away() -> None:
    done = run_nacre("explain", "--json", "-", stdin=b"echo \xff")
    assert json.loads(done.stdout)["verdict"] == "run"
    ours, theirs = os.pipe()
    os.close(ours)
    gone = subprocess.run(
        [PROGRAM, "explain", "ls"], stdout=theirs, stderr=subprocess.PIPE, timeout=60
    )
    os.close(theirs)
    assert b"Traceback" not in gone.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--contract", "phoenx", "ls"], "no contract 'phoenx'; contracts: nacre, phoenix"),
        (["--set", "saftey=disk", "ls"], "there is no option 'saftey'; did you mean 'safety'?"),
        (
            ["--set", "safety=disc", "ls"],
            "there is no safety rule or pack 'disc'; did you mean 'disk'?",
        ),
        (["--set", "safety", "ls"], "--set safety has no value"),
        (
            ["--contract", "pi", "--set", "intercept=maybe", "ls"],
            "intercept cannot be 'maybe'; it can be off, warn, block",
        ),
        (["--set", "timeout=-1", "ls"], "timeout must be at least 0"),
        (
            ["--contract", "pi", "--set", "intercept_rules=raed", "ls"],
            "no interception rule 'raed'",
        ),
        (
            [
                "--contract",
                "pi",
                "--set",
                'rules=[{"tool": "x", "message": "m", "pattern": "("}]',
                "ls",
            ],
            "rule 1 (for the tool 'x') has a pattern that does not compile",
        ),
        (
            ["--contract", "pi", "--set", 'rules=[{"tool": "x", "message": "m"}]', "ls"],
            "rule 1 (for the tool 'x') needs either a pattern or words",
        ),
        (["--contract", "pi", "--set", "rules=[", "ls"], "rules is not JSON"),
        (
            ["--contract", "pi", "--set", 'rules=[{"tool":"","message":"","words":["a"]}]', "ls"],
            "rule 1 names '', which is not a tool name",
        ),
        (["--contract", "pi", "--set", "rules=[{}]", "ls"], "rules[0] needs tool"),
        (
            ["--contract", "pi", "--set", 'rules=[{"tool":"x","message":"","zzz":1}]', "ls"],
            "rules[0] has an unknown field zzz",
        ),
        (["--set", "environment=some", "ls"], "it can be inherit, filtered, minimal"),
        (["--set", "coauthor=on", "ls"], "trailer must be like"),
        ([" "], "command is required"),
    ],
)
def test_wrong_options_are_named(
    words: list[str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words]) == 2
    said = capfd.readouterr()
    assert says in said.err
    assert said.out == ""
