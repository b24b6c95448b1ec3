"""Tests of the steps before a command runs: directory, leading cd, interception, terminal."""

import os
from pathlib import Path

import pytest

from nacre.model.findings import CdLifted, NeedsTerminal, ToolSuggested
from nacre.model.refusals import BadDirectory, DirectoryProblem, Intercepted
from tests.support.decide import decided, script
from tests.support.explain import TOOLS, asked

# Directories and leading cds


@pytest.mark.parametrize(
    ("command", "cwd", "rest"),
    [
        ("cd a && b", "a", "b"),
        ("cd a&&b", "a", "b"),
        ("cd a && b && c", "a", "b && c"),
        ("cd a && cd b && c", "a", "cd b && c"),
        ("cd a && b | c", "a", "b | c"),
        ("cd a && (b; c)", "a", "(b; c)"),
        ("cd a && { b || c; }", "a", "{ b || c; }"),
        ("cd a && if b; then c; fi", "a", "if b; then c; fi"),
        ("cd a &&\n  b", "a", "b"),
        ("cd a && \\\n  b", "a", "b"),
        ("cd a && b # why", "a", "b # why"),
        ("cd a && cat <<E\nx; y\nE", "a", "cat <<E\nx; y\nE"),
        ("cd 'a b' && c", "a b", "c"),
        ('cd "a b" && c', "a b", "c"),
        ("cd a\\ b && c", "a b", "c"),
        ("cd a' 'b\"c\" && d", "a bc", "d"),
        ("cd '~/x' && y", "~/x", "y"),
        ("cd ~ && y", "~", "y"),
        ("  cd a && b  ", "a", "b"),
        ("cd .. && b", "..", "b"),
        ("'cd' a && b", "a", "b"),
        ("cd a && b 2>&1 > c", "a", "b 2>&1 > c"),
    ],
)
def test_a_leading_cd_is_lifted(command: str, cwd: str, rest: str) -> None:
    decision = decided("pi", command, env={"HOME": "/home/me"})
    assert CdLifted(path=cwd.encode()) in decision.findings
    assert decision.plan.command.script.decode() == rest
    assert decision.plan.command.original.decode() == command


@pytest.mark.parametrize(
    "command",
    [
        *(
            "cd a",
            "cd a; b",
            "cd a || b",
            "cd a && b || c",
            "cd a && b; c",
            "cd a && b &",
            "cd a & b",
        ),
        *(
            "cd a\nb",
            "cd a && b\nc",
            "cd a && b;",
            "cd && b",
            "cd - && b",
            "cd -P a && b",
            "cd -- a && b",
        ),
        *('cd "" && b', "cd a b && c", "cd $a && b", "cd `a` && b", "cd $(a) && b", "cd a* && b"),
        *(
            "cd {a,b} && c",
            "cd a > b && c",
            "cd a 2>/dev/null && b",
            "cd <(a) && b",
            "x=1 cd a && b",
        ),
        *("(cd a && b)", "{ cd a && b; }", "! cd a && b", "echo a && cd b && c", "cd a && b 'open"),
        *("pushd a && b", "cdx a && b", "cd ~+ && b", "if cd a && b; then c; fi", "cd a | b && c"),
        *('cd "a$x" && b', "command cd a && b", "# x\ncd a && b", "cd ~nobody-there && b"),
    ],
)
def test_any_other_cd_is_not(command: str) -> None:
    decision = decided("pi", command)
    assert not [each for each in decision.findings if isinstance(each, CdLifted)]
    assert script(decision) == command


def test_a_lifted_directory_is_where_bash_would_have_gone(tmp_path: Path) -> None:
    (tmp_path / "~").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    env = {"HOME": str(tmp_path / "real")}

    def where(command: str, **more: str) -> bytes:
        return decided("pi", command, cwd=tmp_path, env={**env, **more}).plan.command.cwd

    assert where("cd ~ && x") == os.fsencode(tmp_path / "real")
    assert where("cd '~' && x") == os.fsencode(tmp_path / "~")
    assert where("cd link && x") == os.fsencode(tmp_path / "link")
    assert where("cd link/.. && x") == os.fsencode(tmp_path)
    # If CDPATH applies to the cd, nacre leaves the cd to bash.
    assert where("cd real && x", CDPATH="/elsewhere") == os.fsencode(tmp_path)
    assert where("cd ./real && x", CDPATH="/elsewhere") == os.fsencode(tmp_path / "real")


def test_a_cd_that_the_rest_knows_of_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for command in (
        *("cd a && make && cd -", "cd a && make; cd - && x", "cd a && ls $OLDPWD", "cd a && ls ~-"),
        *("cd a && pushd b && popd", "cd nowhere/.. && pwd"),
    ):
        assert decided("pi", command, cwd=tmp_path).plan.command.script.decode() == command
    assert decided("pi", "cd a/.. && pwd", cwd=tmp_path).plan.command.script == b"pwd"
    assert decided("pi", "cd a && x-cd -y", cwd=tmp_path).plan.command.script == b"x-cd -y"


def test_a_home_that_the_call_gives_is_the_home() -> None:
    def refused(command: str, **extra: str) -> bool:
        return decided("nacre", command, env={"HOME": "/data/me"}, extra=extra).refusal is not None

    assert refused("rm -rf /data/me")
    assert not refused("rm -rf /data/me", HOME="/data/you")
    assert refused("rm -rf /data/you", HOME="/data/you")
    assert refused("rm -rf ~/etc", HOME="/")


def test_a_cd_is_not_lifted_when_the_call_says_where(tmp_path: Path) -> None:
    decision = decided("pi", "cd a && b", cwd="/", directory=str(tmp_path))
    assert script(decision) == "cd a && b"


@pytest.mark.parametrize("contract", ["harness", "phoenix", "pi", "nacre"])
def test_each_problem_with_a_directory_is_its_own_sentence(contract: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    missing = decided(contract, "true", cwd=tmp_path / "a" / "b").refusal
    assert missing == BadDirectory(
        path=os.fsencode(tmp_path / "a" / "b"),
        problem=DirectoryProblem.MISSING,
        nearest=os.fsencode(tmp_path),
    )
    assert str(missing) == f"cwd {tmp_path}/a/b does not exist; {tmp_path} does"
    a_file = decided(contract, "true", cwd=tmp_path / "file").refusal
    assert str(a_file) == f"cwd {tmp_path}/file is not a directory; {tmp_path} is"


# Interception of commands for which the agent has a better tool


def suggested(command: str, tools: list[str] = TOOLS) -> tuple[str, dict[str, object]] | None:
    found = asked(command, contract="pi", tools=tools)["suggestion"]
    return None if found is None else (found["tool"], found["arguments"])


@pytest.mark.parametrize(
    ("command", "tool", "arguments"),
    [
        ("cat f", "read", {"path": "f"}),
        ("cat -n 'a b'", "read", {"path": "a b"}),
        ("cat f g", "read", {"path": "f"}),
        ("cat < f", "read", {"path": "f"}),
        ('cat "$f"', "read", {}),
        ("cat f 2>/dev/null", "read", {"path": "f"}),
        ("head -n 5 f", "read", {"path": "f", "limit": 5}),
        ("head -5 f", "read", {"path": "f", "limit": 5}),
        ("head --lines=5 f", "read", {"path": "f", "limit": 5}),
        ("tail -n 5 f", "read", {"path": "f"}),
        ("tail -n +5 f", "read", {"path": "f"}),
        ("less f", "read", {"path": "f"}),
        ("more f", "read", {"path": "f"}),
        ("/bin/cat f", "read", {"path": "f"}),
        ("cd /tmp && cat f", "read", {"path": "f"}),
        ("true; cat f", "read", {"path": "f"}),
        ("if true; then cat f; fi", "read", {"path": "f"}),
        ("(cat f)", "read", {"path": "f"}),
        ("time cat f", "read", {"path": "f"}),
        ("bash -c 'cat f'", "read", {"path": "f"}),
        ("grep x f", "search", {"pattern": "x", "path": "f"}),
        ("grep -rn 'a b' src", "search", {"pattern": "a b", "path": "src"}),
        ("grep -r x", "search", {"pattern": "x"}),
        ("grep -A 3 x f", "search", {"pattern": "x", "path": "f"}),
        ("grep -e x f", "search", {"pattern": "x", "path": "f"}),
        ("rg x", "search", {"pattern": "x"}),
        ("rg -t py x src", "search", {"pattern": "x", "path": "src"}),
        ("ag x", "search", {"pattern": "x"}),
        ("ack x", "search", {"pattern": "x"}),
        ("find . -name '*.py'", "find", {"pattern": "*.py", "path": "."}),
        ("find src -type f", "find", {"path": "src"}),
        ("find -iname x", "find", {"pattern": "x"}),
        ("fd -t f x", "find", {"pattern": "x"}),
        ("sed -i s/a/b/ f", "edit", {"path": "f"}),
        ("sed -E -i s/a/b/ f", "edit", {"path": "f"}),
        ("sed -i.bak s/a/b/ f", "edit", {"path": "f"}),
        ("sed -ni p f", "edit", {"path": "f"}),
        ("sed --in-place=.bak p f", "edit", {"path": "f"}),
        ("sed -e s/a/b/ -i f", "edit", {"path": "f"}),
        ("perl -pi -e s/a/b/ f", "edit", {"path": "f"}),
        ("perl -i.bak -pe s/a/b/ f", "edit", {"path": "f"}),
        ("gawk -i inplace '{print}' f", "edit", {"path": "f"}),
        ("echo hi > f", "write", {"path": "f", "content": "hi\n"}),
        ("echo -n hi > f", "write", {"path": "f", "content": "hi"}),
        ("echo hi >> f", "write", {"path": "f"}),
        ("printf 'a\\nb' > f", "write", {"path": "f", "content": "a\nb"}),
        ('echo "$x" > f', "write", {"path": "f"}),
        ("echo x > $OUT", "write", {}),
        ("echo x &> f", "write", {"path": "f"}),
        ("cat <<'E' > f\nx\nE", "write", {"path": "f", "content": "x\n"}),
        ("cat > f <<'E'\nx\nE", "write", {"path": "f", "content": "x\n"}),
        ("echo x | tee f", "write", {"path": "f", "content": "x\n"}),
        ("cat <<E | tee f\nx\nE", "write", {"path": "f", "content": "x\n"}),
    ],
)
def test_a_better_tool_is_suggested(command: str, tool: str, arguments: dict[str, object]) -> None:
    found = suggested(command)
    assert found is not None
    said_tool, said = found
    assert said_tool == tool
    assert {key: said.get(key) for key in arguments} == arguments
    assert suggested(command, [each for each in TOOLS if each != tool]) is None


@pytest.mark.parametrize(
    "command",
    [
        *("cat", "cat -", "cat f | wc", "ps | grep x", "x=$(cat f)", "for f in a; do cat f; done"),
        *("f() { cat x; }", "while read l; do grep x f; done", "cat a b > c", "grep x f > out"),
        *(
            "cat /proc/cpuinfo",
            "cat /dev/stdin",
            "head -c 16 /dev/urandom",
            "cat /sys/x",
            "tail -f log",
        ),
        *("tail -F log", "tail --follow=name log", "tail -n5 -f log", "sudo cat /etc/shadow"),
        *(
            "grep x",
            "grep -q x <(ls)",
            "find . -delete",
            "find . -name x -delete",
            "find . -name x -exec y {} +",
        ),
        *(
            "find .",
            "fd x -x rm",
            "sed s/a/b/ f",
            "sed -n 5p f",
            "sed 's/-i/x/' f",
            "perl s.pl --input x",
        ),
        *(
            "perl -ne print f",
            "perl x.pl -i",
            "awk '{print}' f",
            "awk -i lib x f",
            "echo hi",
            "echo a\\>b",
        ),
        *(
            "echo '> f'",
            "echo hi > /dev/null",
            "echo hi >&2",
            "echo hi > /dev/stderr",
            "echo x 2> f",
        ),
        *(
            "printf x > /dev/tty",
            "make 2> err.log",
            "make > out",
            "make | tee log",
            "cat <<E\nx\nE",
        ),
        *(
            "cat <<< x",
            "xargs cat < f",
            "find . -name x | xargs grep y",
            "echo 'cat x'",
            "git grep x",
        ),
        *(
            "echo x > /dev/stdout",
            "rgx f",
            "catalog x",
            "ls | head -5",
            "cat f & wait; cat g | sort",
        )[:4],
    ],
)
def test_where_the_other_tool_cannot_stand_nothing_is(command: str) -> None:
    assert suggested(command) is None


def test_blocking_refuses_with_the_suggestion_as_data() -> None:
    decision = decided(
        "pi", "cd / && cat etc/hosts", tools=("read",), options={"intercept": "block"}
    )
    refusal = decision.refusal
    assert isinstance(refusal, Intercepted)
    assert (refusal.tool, refusal.arguments) == ("read", {"path": "etc/hosts"})
    assert refusal.command == "cd / && cat etc/hosts"


def test_warning_runs_and_notes_it() -> None:
    decision = decided("pi", "cat f", tools=("read",), options={"intercept": "warn"})
    assert decision.refusal is None
    assert [type(each) for each in decision.findings if isinstance(each, ToolSuggested)] == [
        ToolSuggested
    ]


def test_rules_of_ones_own_by_words_and_by_pattern() -> None:
    rules = [
        {"tool": "test", "message": "use the test tool", "words": ["npm", "test"]},
        {"tool": "http", "message": "use the http tool", "pattern": r"^curl\s.*https?://"},
    ]
    options = {"intercept": "block", "rules": rules, "intercept_rules": []}

    def tool(command: str) -> str | None:
        found = decided("pi", command, tools=("test", "http", "read"), options=options).refusal
        return found.tool if isinstance(found, Intercepted) else None

    assert tool("npm test") == tool("cd / && npm 'test' -- x") == tool("env npm test") == "test"
    assert tool("npm run test") is tool("echo npm test") is tool("cat f") is None
    assert tool("curl -s https://x") == "http"
    assert tool("echo 'curl https://x'") is tool("curl https://x | jq .") is None


# Commands that need a terminal


@pytest.mark.parametrize(
    "command",
    [
        *(
            "vim f",
            "vi",
            "nano f",
            "emacs f",
            "top",
            "htop",
            "less f",
            "more f",
            "watch ls",
            "ssh -t h",
        ),
        *("git rebase -i HEAD~3", "git rebase --interactive x", "git add -p", "git commit", "tmux"),
        *(
            "git commit --amend",
            "docker run -it x",
            "docker exec -ti x sh",
            "kubectl exec -it p -- sh",
        ),
        *(
            "crontab -e",
            "sudo vim /etc/hosts",
            "cd x && vim f",
            "fzf",
            "visudo",
            "screen",
            "passwd",
        ),
        *("tmux attach", "git add -i", "git stash -p", "visudo", "man x | less"),
    ],
)
def test_what_needs_a_terminal_is_known(command: str) -> None:
    found = [each for each in decided("nacre", command).findings if isinstance(each, NeedsTerminal)]
    assert len(found) == 1
    assert found[0].why
    assert found[0].instead


@pytest.mark.parametrize(
    "command",
    [
        *(
            "vim --version",
            "vim -es x",
            "emacs --batch x",
            "top -b -n 1",
            "top -bn1",
            "less f | cat",
        ),
        *("ssh h ls", "git rebase main", "git rebase --continue", "git add f", "git commit -m x"),
        *("git commit -F f", "git commit --amend --no-edit", "git commit -C HEAD", "docker run x"),
        *(
            "GIT_SEQUENCE_EDITOR=: git rebase -i x",
            "git -c sequence.editor=: rebase -i x",
            "echo vim",
        ),
        *("crontab -l", "EDITOR=cat crontab -e", "tmux new-session -d", "screen -dm x", "ls"),
        *(
            "visudo -c",
            "fzf --filter x",
            "env GIT_EDITOR=true git commit",
            "grep top f",
            "docker run -d -t x",
        ),
        *("tmux send-keys x", "git stash", "git checkout -b x", "git log -p", "git diff"),
    ],
)
def test_what_does_not_is_left_alone(command: str) -> None:
    assert not [e for e in decided("nacre", command).findings if isinstance(e, NeedsTerminal)]


# Prefix, trimming, order of the steps, and special cases


def test_a_prefix_stands_before_what_bash_gets() -> None:
    decision = decided("pi", "  cd / && ls  ", options={"prefix": "time"})
    assert script(decision) == "time ls"


def test_blanks_around_a_command_are_trimmed_but_not_escaped_ones() -> None:
    assert script(decided("pi", " \n echo a\\  \n")) == "echo a\\ "
    assert script(decided("phoenix", " echo a ")) == " echo a "


def test_pi_decides_in_its_order() -> None:
    """The steps check variable names, interception, URLs and the directory, in this order. The
    first refusal ends the preparation."""
    everything = {
        "tools": ("read",),
        "options": {"intercept": "block"},
        "directory": "/nowhere/at/all",
    }
    command = "cat f local://.."
    first = decided("pi", command, extra={"1": "x"}, **everything)  # type: ignore[arg-type]
    assert type(first.refusal).__name__ == "BadVariable"
    second = decided("pi", command, **everything)  # type: ignore[arg-type]
    assert type(second.refusal).__name__ == "Intercepted"
    third = decided("pi", command, directory="/nowhere/at/all")
    assert type(third.refusal).__name__ == "BadLink"
    fourth = decided("pi", "cat f", directory="/nowhere/at/all")
    assert type(fourth.refusal).__name__ == "BadDirectory"


def test_phoenix_looks_at_the_directory_first() -> None:
    decision = decided("phoenix", "rm -rf /", cwd="/nowhere/at/all")
    assert type(decision.refusal).__name__ == "BadDirectory"


def test_corners_of_interception() -> None:
    expected: dict[str, tuple[str, dict[str, object]] | None] = {
        "grep -ne x f": ("search", {"path": "f"}),
        "grep --regexp=foo f": ("search", {"path": "f"}),
        "grep -f pats f": ("search", {"path": "f"}),
        "rg --type py x src": ("search", {"pattern": "x", "path": "src"}),
        "grep --include '*.py' -r x .": ("search", {"pattern": "x", "path": "."}),
        "grep --context 3 x f": ("search", {"pattern": "x", "path": "f"}),
        "find -L . -name x": ("find", {"pattern": "x", "path": "."}),
        "sed s/a/b/ f -i": ("edit", {"path": "f"}),
        "sed --in-pl s/a/b/ f": ("edit", {"path": "f"}),
        "perl -CSDi -pe x f": ("edit", {"path": "f"}),
        "head < f": ("read", {"path": "f"}),
        **dict.fromkeys(
            [
                *("grep x -", "find /proc -name x", "find /dev -name 'sd*'", "tail --fol log"),
                *("less +F log", "cat <(ls)", "echo x > >(cat)", "sed -- s/a/b/ -i", "cat 3< f"),
                *("echo 1 > /sys/x", "awk", "gawk", "head", "cat", "sed", "perl", "find", "grep"),
            ]
        ),
    }
    assert {command: suggested(command) for command in expected} == expected


def test_corners_of_terminals() -> None:
    def wants(command: str) -> bool:
        findings = decided("nacre", command).findings
        return any(isinstance(each, NeedsTerminal) for each in findings)

    needs = [
        *("docker run -itw /x ubuntu", "docker attach c", "git rebase --inter x", "sudo -e f"),
        *("git rebase --edit-todo", "git tag -a v1", "git config edit", "EDITOR=vim git commit"),
        *("kubectl edit deploy x", "systemctl edit x"),
    ]
    does_not = [
        *("ssh h ls -t", "docker exec c ls -t", "docker run ubuntu tar -it", "git stash show -p"),
        *("kubectl exec pod -- ls -t", "git rebase -i --help", "git tag -a v1 -m x", "git tag v1"),
        *("export GIT_EDITOR=true; git commit --amend", "export EDITOR=true; crontab -e"),
    ]
    assert [each for each in needs if not wants(each)] == []
    assert [each for each in does_not if wants(each)] == []
