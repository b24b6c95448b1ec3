"""Tests of commit trailers in real git repositories: nacre adds the trailer exactly once.

Every other byte of the command stays the same.
"""

import subprocess
from pathlib import Path

import pytest

from nacre.model.findings import TrailerAdded, TrailerSkipped
from tests.support.decide import decided, script

TRAILER = "Co-authored-by: Phoenix <phoenix@exe.dev>"
KEY = "-c trailer.co-authored-by"
SETTING = f"{KEY}.ifexists=addIfDifferent {KEY}.ifmissing=add "
ADDED = f" --trailer '{TRAILER}'"


class Repository:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = path.parent / "home"
        self.home.mkdir(exist_ok=True)
        path.mkdir(parents=True)
        self.run("git init -q -b main .")
        self.run("git config user.name Tester; git config user.email tester@example.com")

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "EDITOR": "/bin/false"}

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.path,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def change(self) -> None:
        self.run("date +%N >> file; git add file")

    def decide(self, command: str) -> str:
        return script(decided("phoenix", command, cwd=self.path, env=self.env))

    def commit(self, command: str) -> str:
        """Run the command as the phoenix contract does, and return the commit message."""
        self.run(self.decide(command))
        return self.run("git log -1 --format=%B").strip()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.change()
    return made


COMMITS = {
    "plain": "git commit -m 'Add it'",
    "two paragraphs": "git commit -m Add -m it",
    "all": "git commit -am Add",
    "glued": "git commit -mAdd",
    "signed off": "git commit -s -m Add",
    "from a file": "echo Add > msg; git commit -F msg",
    "from a pipe": "echo Add | git commit -F -",
    "from a heredoc": "git commit -F - <<'E'\nAdd \"it\"\n\nwith 'care' and `ticks` $x\nE",
    "from a heredoc in quotes": "git commit -m \"$(cat <<'EOF'\nAdd (it)\n\nBody's `x`\nEOF\n)\"",
    "with -C": 'cd / && git -C "$OLDPWD" commit -m Add',
    "with settings": "git -c core.editor=false --no-pager commit -m Add",
    "with variables": "GIT_AUTHOR_NAME='A B' git commit -m Add",
    "in a list": "true && git commit -m Add && true",
    "in a condition": "if git commit -m Add; then :; fi",
    "in a subshell": "(git commit -m Add)",
    "in a function": 'f() { git commit -m "$1"; }; f Add',
    "in a substitution": "x=$(git commit -m Add)",
    "in single quotes": "bash -c 'git commit -m Add'",
    "in double quotes": 'bash -c "git commit -m Add"',
    "in a shell's heredoc": "bash <<'E'\ngit commit -m Add\nE",
    "through env": "env A=1 git commit -m Add",
    "quoted": "'git' \"commit\" -m Add",
    "over lines": "git \\\n  commit \\\n  -m Add",
    "unicode": "echo é; git commit -m 'Ä ö ü'",
    "quietly": "git commit -q --no-verify -m Add -- file",
    "an editor is set": "git config core.editor 'false'; git commit -m Add",
    "a hook that adds": (
        "printf '#!/bin/sh\\necho hooked >> \"$1\"\\n' > .git/hooks/prepare-commit-msg;"
        " chmod +x .git/hooks/prepare-commit-msg; git commit -m Add"
    ),
    "another trailer": "git commit -m 'Add\n\nReviewed-by: Somebody <s@example.com>'",
}


@pytest.mark.parametrize("name", COMMITS)
def test_a_commit_has_the_trailer_once(repository: Repository, name: str) -> None:
    assert repository.commit(COMMITS[name]).count(TRAILER) == 1


@pytest.mark.parametrize("name", COMMITS)
def test_every_other_byte_stays(repository: Repository, name: str) -> None:
    given = COMMITS[name]
    made = repository.decide(given)
    for quote in ("'", '"'):
        made = made.replace(f" --trailer {quote}{TRAILER}{quote}", "")
    assert made.replace(SETTING, "") == given
    assert made != given


@pytest.mark.parametrize(
    "message",
    [
        f"Add\n\n{TRAILER}",
        f"Add\n\n{TRAILER}\nSigned-off-by: Tester <tester@example.com>",
        f"Add\n\nSigned-off-by: Tester <tester@example.com>\n{TRAILER}",
    ],
)
def test_a_message_that_has_it_already_keeps_one(repository: Repository, message: str) -> None:
    assert repository.commit(f"git commit -m '{message}'").count(TRAILER) == 1


def test_amending_does_not_add_another(repository: Repository) -> None:
    repository.commit("git commit -m First")
    for command in (
        "git commit --amend --no-edit",
        "git commit --amend --no-edit -s",
        "git commit --amend --no-edit",
        "git commit --amend -C HEAD",
        "git commit --amend -m Again",
    ):
        assert repository.commit(command).count(TRAILER) == 1


@pytest.mark.parametrize(
    "command",
    [
        'run() { "$@"; }; run git commit -m x; run git status',
        'a=(git commit -m x); "${a[@]}"',
        "cmd='git commit -m x'; $cmd",
        "c='commit -m'; git $c x",
        "git {commit,-m} x",
        'set -- git commit -m x; "$@"',
        'g() { git "$@"; }; g commit -m x; g status --short',
        "bash -c '\"$@\"' _ git commit -m x",
    ],
)
def test_words_that_something_expands_to_are_not_touched(
    repository: Repository, command: str
) -> None:
    assert repository.decide(command) == command
    repository.run(command)


@pytest.mark.parametrize("message", [f"Add\n\n{TRAILER}\n\nMore", f"- a\n- b\n{TRAILER}", TRAILER])
def test_a_message_that_has_it_anywhere_keeps_one(repository: Repository, message: str) -> None:
    assert repository.commit(f"git commit -m '{message}'").count(TRAILER) == 1
    repository.change()
    assert repository.commit(f"git commit -F - <<'E'\n{message}\nE").count(TRAILER) == 1


def test_an_empty_message_is_still_refused_by_git(repository: Repository) -> None:
    assert repository.decide("git commit -m ''") == "git commit -m ''"
    assert repository.decide("git commit -F /dev/null") == "git commit -F /dev/null"


@pytest.mark.parametrize(
    "command",
    ["bash <<'A'; bash <<'B'\n{0}\nA\n{0}\nB", "bash <<'A' # {0}\n{0}\nA", "bash <<< '{0}'"],
)
def test_a_heredoc_is_changed_where_it_stands(repository: Repository, command: str) -> None:
    commit = "git commit --allow-empty -m x"
    given = command.format(commit)
    commits = 1 if "B" not in command else 2
    assert repository.commit(given).count(TRAILER) == 1
    assert repository.run("git log --format=%B").count(TRAILER) == commits


def test_the_path_variable_of_a_call_does_not_select_the_git_that_nacre_asks(
    repository: Repository, tmp_path: Path
) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "git").write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\n")
    (evil / "git").chmod(0o755)
    env = {**repository.env, "MY_API_KEY": "hidden"}
    extra = {"PATH": f"{evil}:/usr/bin:/bin"}
    decided("phoenix", "git commit -m x", cwd=repository.path, env=env, extra=extra)
    assert not (tmp_path / "seen").exists()


def test_several_commits_in_one_command(repository: Repository) -> None:
    given = "git commit -m one; echo x >> file; git add file; git commit -m two"
    repository.run(repository.decide(given))
    assert repository.run("git log --format=%B").count(TRAILER) == 2


@pytest.mark.parametrize(
    "setting",
    ["trailer.ifexists addIfDifferentNeighbor", "trailer.co-authored-by.ifexists add"],
)
def test_settings_of_the_user_do_not_make_it_two(repository: Repository, setting: str) -> None:
    repository.run(f"git config {setting}")
    message = f"Add\n\n{TRAILER}\nSigned-off-by: Tester <tester@example.com>"
    assert repository.commit(f"git commit -m '{message}'").count(TRAILER) == 1


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git log commit",
            "git stash push -m commit",
            "git commit --dry-run -m x",
            "git commit -h",
        ),
        *("git commit --fixup HEAD", "git commit --fixup=HEAD", "git commit --squash HEAD -m x"),
        *("git commit --short", "git commit --porcelain", "git commit --long", "git commit --help"),
        *("git commit --dry -m x", "git commit-tree HEAD", "git help commit", "echo git commit"),
        *(
            "# git commit -m x",
            "git config alias.commit x",
            "grep 'git commit' x",
            "git branch commit",
        ),
        *("git --help commit", "git commit -m x --trailer '" + TRAILER + "'", "gitcommit"),
    ],
)
def test_what_makes_no_commit_of_its_own_is_left_alone(
    repository: Repository, command: str
) -> None:
    assert repository.decide(command) == command


def test_a_commit_without_any_argument(repository: Repository) -> None:
    made = repository.decide("git commit")
    assert made == f"git {SETTING}commit{ADDED}"


def test_values_that_look_like_options_are_values(repository: Repository) -> None:
    assert repository.commit("git commit -m --dry-run").count(TRAILER) == 1


def test_it_can_be_turned_off(repository: Repository, tmp_path: Path) -> None:
    given = "git commit -m x"
    off = decided("phoenix", given, cwd=repository.path, options={"coauthor": "off"})
    assert script(off) == given
    assert repository.decide(given) != given
    repository.run("git config nacre.coauthor false")
    assert repository.decide(given) == given
    # The setting of the repository that gets the commit counts, not that of the current directory.
    elsewhere = {"cwd": tmp_path, "env": repository.env}
    for command in (
        f"git -C {repository.path} commit -m x",
        f"cd {repository.path} && git commit -m x",
        f"cd {tmp_path}; git -C repository commit -m x",
    ):
        decision = decided("phoenix", command, **elsewhere)  # type: ignore[arg-type]
        assert script(decision) == command
        assert [*decision.findings][-1] == TrailerSkipped(
            why="the repository says nacre.coauthor = false"
        )


def test_what_was_done_is_noted(repository: Repository) -> None:
    decision = decided("phoenix", "git commit -m x", cwd=repository.path, env=repository.env)
    assert TrailerAdded(trailer=TRAILER, commits=1) in decision.findings


def test_a_commit_in_a_text_that_cannot_be_changed_is_left_alone(repository: Repository) -> None:
    given = 'bash -c "git commit -m \\"x y\\""'
    assert repository.decide(given) == given


def test_another_trailer_for_another_contract(repository: Repository) -> None:
    options = {"coauthor": "on", "trailer": "Assisted-by: nacre"}
    decision = decided("pi", "git commit -m x", cwd=repository.path, options=options)
    assert "--trailer 'Assisted-by: nacre' -m x" in script(decision)
