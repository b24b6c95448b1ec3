"""Tests of the environment variables that a command gets."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from nacre.model.findings import VariablesDropped
from nacre.model.refusals import BadVariable
from tests.support.decide import decided

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----"


def env(contract: str, before: dict[str, str], **more: object) -> dict[str, str]:
    decision = decided(contract, "true", env=before, **more)  # type: ignore[arg-type]
    made = decision.plan.command.env
    assert made is not None
    return {os.fsdecode(name): os.fsdecode(value) for name, value in made.items()}


SECRET = [
    *("ANTHROPIC_API_KEY", "ANTHROPIC_X", "OPENAI_ORG", "GEMINI_KEY", "AWS_SECRET_ACCESS_KEY"),
    *("PHOENIX_X", "GITHUB_TOKEN", "github_token", "MY_API_KEY", "APP_SECRET", "APP_SECRET_KEY"),
    *("DB_PASSWORD", "PGPASSWORD", "password", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE_KEY"),
    *("TOKEN", "API_KEY", "AWS_SESSION_TOKEN", "X_CREDENTIAL", "MY_PRIVATE_KEY_FILE"),
]
HARMLESS = [
    *(
        "PATH",
        "HOME",
        "LANG",
        "TOKENIZERS_PARALLELISM",
        "SECRETARY",
        "KEYBOARD",
        "MAKEFLAGS",
        "DISPLAY",
    ),
    *(
        "SSH_AUTH_SOCK",
        "VIRTUAL_ENV",
        "NODE_ENV",
        "GOPATH",
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "TOKENS",
    ),
]
SECRET_VALUES = [
    *(KEY, "postgres://user:pass@host/db", "https://x:y@example.com", "ghp_" + "a" * 36),
    *("github_pat_" + "a" * 40, "sk-" + "a" * 40, "sk-ant-" + "a" * 40, "AKIA" + "A" * 16),
    *("xoxb-123456789012-abc", "glpat-" + "a" * 20, "AIza" + "a" * 35, "hf_" + "a" * 34),
    "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK",
]
HARMLESS_VALUES = [
    *(
        "https://example.com/a?b=c@d",
        "http://proxy:8080",
        "user@host:path",
        "a:b",
        "sk-learn",
        "skip",
    ),
    *(
        "git@github.com:a/b.git",
        "/usr/bin:/bin",
        "risk-averse-long-text-without-a-key",
        "",
        "ghp_x",
    ),
]


@pytest.mark.parametrize("name", SECRET)
def test_names_that_hold_secrets_are_dropped(name: str) -> None:
    for contract in ("phoenix", "pi", "nacre"):
        assert name not in env(contract, {name: "x"})


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_stay(name: str) -> None:
    assert env("nacre", {name: "x"})[name] == "x"


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_values_that_are_secrets_are_dropped(value: str) -> None:
    assert "PLAIN" not in env("nacre", {"PLAIN": value})


@pytest.mark.parametrize("value", HARMLESS_VALUES)
def test_other_values_stay(value: str) -> None:
    assert env("nacre", {"PLAIN": value})["PLAIN"] == value


@pytest.mark.parametrize(
    "name", ["BASH_ENV", "ENV", "BASH_FUNC_ls%%", "SHELLOPTS", "LD_PRELOAD", "BASHOPTS"]
)
def test_what_runs_code_in_every_shell_is_dropped(name: str) -> None:
    assert name not in env("phoenix", {name: "x"})


@pytest.mark.parametrize(
    "text", ["a" * 130_000, "eyJ-" * 30_000, "SG." * 40_000, "a://b:" * 20_000]
)
def test_long_values_take_no_time(text: str) -> None:
    began = time.process_time()
    env("nacre", {"LONG": text, "N": str(began)})
    assert time.process_time() - began < 0.5


def test_paths_are_not_taken_for_keys() -> None:
    path = "/home/me/sk-learn-contrib-extra-project-2/.venv/bin:/usr/bin"
    assert env("phoenix", {"PATH": path})["PATH"] == path


def test_what_was_dropped_is_noted_by_name_only() -> None:
    decision = decided("nacre", "true", env={"A_TOKEN": "hidden", "B": "x", "LD_PRELOAD": "y"})
    assert VariablesDropped(names=("A_TOKEN", "LD_PRELOAD")) in decision.findings
    assert "hidden" not in repr(decision.findings)


def test_an_allow_list_and_the_call_itself_win() -> None:
    before = {"A_TOKEN": "a", "B_TOKEN": "b"}
    kept = env("nacre", before, options={"allow": "A_TOKEN"})
    assert ("A_TOKEN" in kept, "B_TOKEN" in kept) == (True, False)
    given = env("pi", before, extra={"C_TOKEN": "c", "B_TOKEN": "d", "PAGER": "less"})
    assert (given["C_TOKEN"], given["B_TOKEN"], given["PAGER"]) == ("c", "d", "less")


def test_minimal_keeps_a_handful_and_inherit_everything() -> None:
    before = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "FOO": "x", "A_TOKEN": "y"}
    minimal = env("phoenix", before, options={"environment": "minimal"})
    assert {*before} & {*minimal} == {"PATH", "HOME", "LC_ALL"}
    inherited = env("phoenix", before, options={"environment": "inherit"})
    assert {*before} <= {*inherited}
    assert decided("harness", "true", env=before).plan.command.env == {
        name.encode(): value.encode() for name, value in before.items()
    }


def test_nothing_asks_and_nothing_pages() -> None:
    made = env("pi", {})
    assert (made["PAGER"], made["GIT_EDITOR"], made["CI"]) == ("cat", "true", "true")
    assert made["GIT_TERMINAL_PROMPT"] == "0"
    assert env("nacre", {})["GIT_EDITOR"] == env("phoenix", {})["GIT_EDITOR"] == "/bin/false"
    assert env("nacre", {})["PAGER"] == "cat"
    assert "PAGER" not in env("phoenix", {})


@pytest.mark.parametrize("name", ["1A", "A-B", "A B", "", "A=B", "é"])
def test_names_that_no_variable_can_have_are_refused(name: str) -> None:
    refusal = decided("pi", "true", extra={name: "x"}).refusal
    assert isinstance(refusal, BadVariable)
    assert refusal.name == name


def test_a_rebase_says_what_works_instead_and_it_does(tmp_path: Path) -> None:
    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=env("phoenix", {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}),
            capture_output=True,
            text=True,
            timeout=60,
        )

    made = run(
        "git init -q . && git config user.name T && git config user.email t@e.c"
        " && git config sequence.editor true && git config core.editor true"
        " && for i in 0 1 2 3; do echo $i > f; git add f; git commit -q -m c$i; done"
    )
    assert made.returncode == 0, made.stderr
    failed = run("git rebase -i HEAD~3")
    assert failed.returncode != 0
    assert "GIT_SEQUENCE_EDITOR=" in failed.stderr
    advice = failed.stderr[failed.stderr.index("GIT_SEQUENCE_EDITOR=") :].split("\n")[0]
    worked = run(advice)
    assert worked.returncode == 0, worked.stderr
    assert run("git log --format=%s | wc -l").stdout.strip() == "2"
    # nacre sets GIT_EDITOR to /bin/false, which overrides the editor of the repository.
    assert run("git commit --amend").returncode != 0
