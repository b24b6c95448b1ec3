"""Tests of the settings: which value applies, its origin, and the limits of a workspace.

Values come from the user's settings file, from a workspace's nacre.toml, and from the caller.
"""

import os
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre import settings
from nacre.settings import SettingsError
from nacre.store.cleanup import StoreLimits
from tests.support.command_line import run_nacre


@pytest.fixture
def user(tmp_path: Path) -> Path:
    path = tmp_path / "config" / "nacre" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    (place / ".git").mkdir(parents=True)
    (place / "deep").mkdir()
    return place / "nacre.toml"


def load(project: Path, contract: str = "phoenix", **options: Any) -> settings.Settings:
    return settings.load(contract, str(project.parent / "deep").encode(), options)


def test_without_files_everything_is_as_by_default(project: Path) -> None:
    found = load(project)
    assert found.option_values == {}
    assert found.options["timeout"] == settings.Setting(value=30.0, origin="default")
    assert found.store_limits == StoreLimits()


def test_the_last_source_wins_and_each_value_names_its_origin(user: Path, project: Path) -> None:
    user.write_text('[phoenix]\ntimeout = 60\nslow_timeout = 1200\nallow = ["MY_TOKEN"]\n')
    project.write_text('# ours\n[phoenix]\ntimeout = 20\nsafety = ["disk", "git"]\n')
    found = load(project, slow_timeout="100")
    where = {name: (each.value, each.origin) for name, each in found.options.items()}
    assert where["timeout"] == (20, f"{project}:3")
    assert where["safety"] == (("disk", "git"), f"{project}:4")
    assert where["allow"] == (["MY_TOKEN"], f"{user}:4")
    assert where["slow_timeout"] == ("100", "given")
    assert where["grace"] == (15.0, "default")


def test_a_tool_is_made_with_them(user: Path, project: Path, monkeypatch: Any) -> None:
    user.write_text('[phoenix]\ntimeout = 0.3\nallow = ["MY_TOKEN"]\n')
    monkeypatch.setenv("MY_TOKEN", "kept")
    with nacre.Tool("phoenix", cwd=project.parent) as tool:
        assert tool.call({"command": "echo $MY_TOKEN; sleep 60"}).text == (
            "[command timed out after 0.3s]\nkept\n"
        )
        assert "stopped after 0.3 seconds" in tool.specs()[0]["description"]
        assert tool.settings.options["timeout"].origin == f"{user}:2"


def test_the_store_is_the_users(user: Path, project: Path) -> None:
    user.write_text('[store]\ndays = 3\nsize = "1.5GB"\n')
    assert load(project).store_limits == StoreLimits(days=3, size=3 * 512 * 1024 * 1024)


@pytest.mark.parametrize(
    ("contract", "user_says", "project_says"),
    [
        ("phoenix", "", "timeout = 29"),
        ("phoenix", "", "grace = 0"),
        ("phoenix", 'coauthor = true\ntrailer = "A: b"', "coauthor = false"),
        ("phoenix", "", 'safety = ["git"]'),
        ("phoenix", "timeout = 100", "timeout = 90"),
        ("phoenix", "", "coauthor = false"),
        ("phoenix", 'environment = "inherit"', 'environment = "filtered"'),
        ("phoenix", "", 'environment = "minimal"'),
        ("phoenix", "", 'safety = ["disk", "workspace"]'),
        ("pi", "", 'intercept = "block"'),
        ("pi", "async = true", "async = false"),
        ("pi", "", "auto_background = 10"),
        ("pi", "", 'rules = [{tool = "read", message = "no", words = ["cat"]}]'),
        ("harness", "", "timeout = 10"),
        ("nacre", "", "timeout = 10"),
    ],
)
def test_a_workspace_may_tighten(
    user: Path, project: Path, contract: str, user_says: str, project_says: str
) -> None:
    user.write_text(f"[{contract}]\n{user_says}\n")
    project.write_text(f"[{contract}]\n{project_says}\n")
    key = project_says.partition(" ")[0]
    assert load(project, contract).options[key].origin == f"{project}:2"


@pytest.mark.parametrize(
    ("contract", "user_says", "project_says", "key", "value"),
    [
        ("phoenix", "timeout = 20", "timeout = 25", "timeout", 20),
        ("phoenix", "timeout = 100", "timeout = 25", "timeout", 25),
        ("phoenix", 'safety = ["git"]', 'safety = ["disk"]', "safety", ("git", "disk")),
        ("phoenix", "coauthor = false", "coauthor = true", "coauthor", False),
        (
            "phoenix",
            'environment = "minimal"',
            'environment = "filtered"',
            "environment",
            "minimal",
        ),
        ("pi", 'intercept = "block"', 'intercept = "warn"', "intercept", "block"),
        ("nacre", "timeout = 0", "timeout = 60", "timeout", 60),
    ],
)
def test_the_tighter_of_both_counts(
    user: Path,
    project: Path,
    contract: str,
    user_says: str,
    project_says: str,
    key: str,
    value: object,
) -> None:
    """Expect no error: a workspace file that suits one user must not fail for another user."""
    user.write_text(f"[{contract}]\n{user_says}\n")
    project.write_text(f"[{contract}]\n{project_says}\n")
    assert load(project, contract).options[key].value == value


@pytest.mark.parametrize(
    ("contract", "user_says", "project_says", "problem"),
    [
        ("phoenix", "", "timeout = 31", "timeout can only be lowered by a workspace (it is 30.0)"),
        ("phoenix", "timeout = 40", "timeout = 41", "can only be lowered by a workspace"),
        ("nacre", "", "timeout = 0", "can only be lowered by a workspace"),
        (
            "pi",
            "",
            'rules = [{tool = "read", message = "m", pattern = "(a+)+$"}]',
            "by words, not by a pattern",
        ),
        ("phoenix", "", "safety = []", 'can only be added to by a workspace (it is ["disk"])'),
        ("phoenix", "", 'safety = ["disk", "-disk.remove"]', "can only be added to"),
        ("phoenix", "", 'environment = "inherit"', "can only be made stricter by a workspace"),
        ("phoenix", "", 'allow = ["MY_TOKEN"]', "allow cannot be set by a workspace"),
        ("phoenix", "", 'trailer = "A: b"', "trailer cannot be set by a workspace"),
        ("pi", "", 'prefix = "sudo"', "prefix cannot be set by a workspace"),
        ("pi", "", "async = true", "can only be switched off by a workspace"),
        ("pi", "", 'timeout_zero = "none"', "cannot be set by a workspace"),
        ("harness", "", "timeout = 31", "can only be lowered by a workspace"),
    ],
)
def test_a_workspace_may_not_loosen(
    user: Path, project: Path, contract: str, user_says: str, project_says: str, problem: str
) -> None:
    user.write_text(f"[{contract}]\n{user_says}\n")
    project.write_text(f"\n[{contract}]\n{project_says}\n")
    with pytest.raises(SettingsError) as error:
        load(project, contract)
    assert str(error.value).startswith(f"{project}:3: [{contract}] ")
    assert problem in str(error.value)
    assert str(error.value).endswith(f"; set it in {user}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[phoenix]\ntimeuot = 3\n", ":2: [phoenix] there is no option 'timeuot'; did you mean"),
        ("[phoenix]\n\ntimeout = 'long'\n", ":3: [phoenix] bad option: timeout must be a number"),
        ("phoenix.timeout = -1\n", ":1: [phoenix] bad option: timeout must be more than 0"),
        ("[phoenix]\ntimeout = '9'\n", ":2: [phoenix] bad option: timeout must be a number"),
        ("[phoenix]\ncoauthor = 1\n", ":2: [phoenix] bad option: coauthor must be true or false"),
        ("[harness]\n\nfoo = 1\n", ":3: [harness] there is no option 'foo'"),
        ("[phoenx]\n", ":1: there is no table 'phoenx'; did you mean [phoenix]?"),
        ("colour = 1\n", ":1: there is no table 'colour'; choose from nacre, phoenix"),
        ("phoenix = 3\n", ":1: phoenix must be a table; write [phoenix] above its keys"),
        ("[phoenix\n", " is not TOML: "),
        ("[pi]\nintercept = 'maybe'\n", ":2: [pi] bad option: intercept cannot be 'maybe'"),
        ("[store]\nsize = 'much'\n", ":2: [store] size 'much' is not a size; write it like 500MB"),
        ("[store]\ndays = 0\n", ":2: [store] bad option: days must be more than 0"),
        ("[pi]\nrules = [{tool = 'read', message = '', pattern = '('}]\n", ":2: [pi] bad option"),
    ],
)
def test_a_wrong_key_or_value_names_file_line_and_remedy(
    user: Path, project: Path, text: str, problem: str
) -> None:
    user.write_text(text)
    with pytest.raises(SettingsError) as error:
        settings.load("pi" if "[pi]" in text else "phoenix", str(project.parent).encode(), {})
    assert str(error.value).startswith(f"{user}{problem}")


def test_a_workspace_has_no_store(user: Path, project: Path) -> None:
    project.write_text("[store]\ndays = 1000\n")
    with pytest.raises(SettingsError, match="the store is shared by all workspaces"):
        load(project)
    del user


def test_a_file_that_cannot_be_read_is_named(user: Path, project: Path) -> None:
    user.mkdir()
    with pytest.raises(SettingsError, match="cannot be read: it is not a file"):
        load(project)


def test_a_settings_file_of_any_kind_does_not_block_loading(project: Path) -> None:
    os.mkfifo(project)
    with pytest.raises(SettingsError, match="it is not a file"):
        load(project)
    project.unlink()
    project.symlink_to("/dev/zero")
    with pytest.raises(SettingsError, match="it is not a file"):
        load(project)
    project.unlink()
    project.write_text("a=" + "[" * 100_000)
    with pytest.raises(SettingsError, match="is not TOML"):
        load(project)
    project.write_text("#" * 2_000_000)
    with pytest.raises(SettingsError, match="too large"):
        load(project)


def test_options_that_are_right_only_together(user: Path, project: Path) -> None:
    user.write_text('[pi]\ntrailer = "A: b"\n')
    assert load(project, "pi", coauthor=True).option_values == {"trailer": "A: b", "coauthor": True}
    with nacre.Tool("pi", cwd=project.parent, options={"coauthor": True}) as tool:
        assert not tool.call({"command": "true"}).is_error


def test_on_the_command_line_a_wrong_file_is_a_sentence(user: Path, project: Path) -> None:
    user.write_text("[phoenix]\ntimeuot = 3\n")
    for words in (["call", '{"command": "true"}'], ["explain", "true"], ["schema"]):
        done = run_nacre(words[0], "--contract", "phoenix", *words[1:], cwd=project.parent)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"nacre: {user}:2: [phoenix] there is no option 'timeuot'")


def test_explain_follows_them(user: Path, project: Path) -> None:
    project.write_text('[phoenix]\nsafety = ["disk", "git"]\n')
    del user
    done = run_nacre("explain", "--contract", "phoenix", "git push --force", cwd=project.parent)
    assert done.stdout.startswith("would be refused, by git.")


def test_doctor_shows_what_is_in_force_and_from_where(user: Path, project: Path) -> None:
    user.write_text("[pi]\ntimeout = 100\n")
    project.write_text("[phoenix]\ntimeout = 20\n")

    def doctor(*words: str) -> str:
        return run_nacre("doctor", *words, cwd=project.parent).stdout

    said = [line.split() for line in doctor().splitlines()]
    assert ["phoenix.timeout", "20.0", f"{project}:2"] in said
    assert ["pi.timeout", "100", f"{user}:2"] in said
    assert ["pi.prefix", '""', "default"] not in said
    everything = [each.split() for each in doctor("--all").splitlines()]
    assert ["pi.prefix", '""', "default"] in everything
    assert ["store.days", "14.0", "default"] in everything
    user.write_text("[pi]\ntimeuot = 100\n")
    assert f"NO  {user}:2: [pi] there is no option 'timeuot'" in doctor()
