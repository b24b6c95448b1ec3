"""Tests of internal URLs: which URLs become paths, and which URLs are only prose."""

import os
from pathlib import Path

import pytest

import nacre
from nacre.engine.engine import Engine
from nacre.model.caller import Resolved
from nacre.model.plan import MakeDirectory
from nacre.model.refusals import BadLink
from nacre.store.workspace import find_workspace
from tests.support.decide import decided, script


@pytest.fixture
def artifact(home: Path) -> str:
    """Make three runs, and return the path of the third run's output file."""
    with nacre.Tool("harness", cwd="/") as tool:
        for command in ("true", "true", "seq 5000"):
            tool.call({"command": command})
    path = home / "runs" / "r3" / "output"
    assert path.read_text().endswith("\n5000\n")
    return str(path)


def test_a_url_in_a_command_becomes_a_path(artifact: str) -> None:
    path = artifact
    for given, made in {
        "cat artifact://3": f"cat {path}",
        "cat 'artifact://3'": f"cat {path}",
        'cat "artifact://3" x': f"cat {path} x",
        "grep x --file=artifact://3": f"grep x --file={path}",
        "curl -d @artifact://3 http://x": f"curl -d @{path} http://x",
        "cat < artifact://3 | wc": f"cat < {path} | wc",
        'echo "$(cat artifact://3)"': f'echo "$(cat {path})"',
        "echo \"a $(cat 'artifact://3')\"": f'echo "a $(cat {path})"',
        "cat <(cat artifact://3)": f"cat <(cat {path})",
        "x=artifact://3; cat $x": f"x={path}; cat $x",
        "a=(artifact://3)": f"a=({path})",
        "cat <<E\n$(cat artifact://3)\nE": f"cat <<E\n$(cat {path})\nE",
        "cat artifact://3 artifact://3": f"cat {path} {path}",
        "join artifact://3,artifact://3": f"join {path},{path}",
    }.items():
        assert script(decided("pi", given)) == made
        assert script(decided("phoenix", given)) == made


@pytest.mark.parametrize(
    "given",
    [
        "echo 'see artifact://3 for more'",
        'echo "see artifact://3"',
        "cat <<'E'\nartifact://3\nE",
        "cat <<E\nartifact://3\nE",
        "# artifact://3",
        "curl https://example.com/artifact://3",
        "curl https://example.com/?f=artifact://3",
        "curl http://example.com ftp://x",
        "echo xartifact://3",
        "bash -c 'cat artifact://3'",
    ],
)
def test_a_url_in_prose_or_inside_another_url_stays(artifact: str, given: str) -> None:
    del artifact
    assert script(decided("pi", given)) == given


def test_paths_are_quoted_for_the_shell(tmp_path: Path) -> None:
    odd = str(tmp_path / "a b'c")
    found = {"skill": lambda rest: Resolved(path=os.fsencode(f"{odd}/{rest}"))}
    made = script(decided("pi", "printf %s skill://x", more_resolvers=found))
    outcome = nacre.run(made)
    assert outcome.output.head.decode() == f"{odd}/x"


def test_values_and_directories_stand_as_they_are(tmp_path: Path) -> None:
    odd = tmp_path / "a b"
    odd.mkdir()
    found = {"skill": lambda _: Resolved(path=os.fsencode(odd))}
    decision = decided(
        "pi",
        "true",
        extra={"WHERE": "skill://x", "TEXT": "see skill://x"},
        directory="skill://x",
        more_resolvers=found,
    )
    command = decision.plan.command
    assert command.call_env == {b"WHERE": os.fsencode(odd), b"TEXT": b"see skill://x"}
    assert command.cwd == os.fsencode(odd)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("cat artifact://99", "there is no run r99 in this workspace (/), or it was cleaned up"),
        ("cat artifact://x", "'x' is not a run id; write 17, r17 or artifact://17"),
        ("cat artifact://", "has no name"),
        ("cat local://../x", "leads out of its directory with .."),
        ("cat local://a/../../x", "leads out of its directory with .."),
        ("cat local://%2e%2e/x", "leads out of its directory with .."),
        ("cat local://%252e%252e%252fx", "leads out of its directory with .."),
        ("cat local:///etc/passwd", "is an absolute path"),
        ("cat local://%2fetc/passwd", "is an absolute path"),
        ("cat local://a%00b", "contains a character that is not allowed"),
        ("cat local://$x", "is followed by more text; write the whole URL"),
        ('cat local://a"$x"', "is followed by more text; write the whole URL"),
        ("cat local://a'/../../etc/passwd'", "is followed by more text; write the whole URL"),
        ("cat local://dir/'my file'", "is followed by more text; write the whole URL"),
        ("cat local://x/\\../y", "is followed by more text; write the whole URL"),
        ("cat local://a,local://..", "leads out of its directory with .."),
        (
            "cat skill://x",
            "skill:// URLs cannot be resolved here; schemes with a resolver: artifact",
        ),
    ],
)
def test_what_stands_for_nothing_is_refused_by_name(given: str, says: str) -> None:
    refusal = decided("pi", given).refusal
    assert isinstance(refusal, BadLink)
    assert refusal.url in given
    assert refusal.problem.startswith(says)


def test_a_resolver_that_fails_is_named() -> None:
    def broken(rest: str) -> Resolved:
        raise RuntimeError(f"no {rest} today")

    refusal = decided("pi", "cat agent://7", more_resolvers={"agent": broken}).refusal
    assert str(refusal) == "agent://7: its resolver failed: no 7 today"


def test_phoenix_knows_artifacts_only() -> None:
    assert script(decided("phoenix", "cat local://x skill://y")) == "cat local://x skill://y"


def test_local_files_have_their_parents_when_the_command_runs(tmp_path: Path, home: Path) -> None:
    decision = decided("pi", "echo hi > local://a/b.txt && cat local://a/b.txt", cwd=tmp_path)
    chores = decision.plan.chores
    assert {type(each) for each in chores} == {MakeDirectory}
    assert not (home / "local").exists()  # preparing the plan creates no file
    engine = Engine()
    outcome = engine.start(decision.plan).wait()
    assert outcome.output.head == b"hi\n"
    written = [path for path in (home / "local").rglob("*") if path.is_file()]
    assert [path.name for path in written] == ["b.txt"]
    assert written[0].parent.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_cannot_be_made_is_a_sentence(tmp_path: Path, home: Path) -> None:
    home.mkdir()
    (home / "local").write_text("in the way")
    decision = decided("pi", "echo hi > local://a/b", cwd=tmp_path)
    engine = Engine()
    outcome = engine.start(decision.plan).wait()
    assert "cannot be created" in str(outcome.ending)


def test_a_link_inside_does_not_lead_out(tmp_path: Path) -> None:
    made = decided("pi", "cat local://x/y", cwd=tmp_path).plan.chores[0].path
    os.makedirs(os.path.dirname(made))
    os.symlink("/etc", made)
    refusal = decided("pi", "cat local://x/passwd", cwd=tmp_path).refusal
    assert isinstance(refusal, BadLink)
    assert "symbolic link" in refusal.problem


def test_a_workspace_is_the_top_of_its_repository(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    assert find_workspace(os.fsencode(inner)) == os.fsencode(tmp_path)
    assert find_workspace(b"/nowhere/at/all") == b"/nowhere/at/all"
