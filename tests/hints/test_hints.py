"""Tests of hints: each hint appears if its statement is true, and only then."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from nacre.hints import hints
from nacre.hints.run_facts import RunFacts
from nacre.model.outcome import Exited, Killed
from tests.support.helpers import PYTHON, eventually

ROOT = Path(__file__).parents[2]
MAY_HAVE_ASKED = (
    "the command may have asked for input, but stdin is empty; with interactive: true, job write "
    "can answer"
)


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[nacre.Tool]:
    place = tmp_path / "place"
    place.mkdir()
    with nacre.Tool(cwd=place, place="here") as made:
        yield made


def hinted(tool: nacre.Tool, command: str, **more: object) -> list[str]:
    found: list[str] = tool.call({"command": command, **more}).details["hints"]
    return found


# Hints about programs that cannot be run


def test_a_command_that_is_not_there_names_those_near_it(tool: nacre.Tool) -> None:
    (said,) = hinted(tool, "gti status")
    assert said.startswith("there is no command gti; near it: git")
    assert hinted(tool, "qqqzzzqqqzzz") == []
    assert hinted(tool, "exit 127") == []
    assert hinted(tool, "echo '/bin/bash: line 1: gti: command not found'") == []
    assert hinted(tool, "set -u; echo $nope") == []


def test_a_command_that_is_only_here_is_named_with_its_place(
    tool: nacre.Tool, tmp_path: Path
) -> None:
    made = tmp_path / "place" / "node_modules" / ".bin" / "tsx"
    made.parent.mkdir(parents=True)
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    assert hinted(tool, "tsx x.ts") == ["tsx is not in PATH; there is ./node_modules/.bin/tsx"]


def test_a_file_that_is_not_there_names_those_near_it(tool: nacre.Tool, tmp_path: Path) -> None:
    (tmp_path / "place" / "configure").touch()
    assert hinted(tool, "./confgure") == ["there is no ./confgure; near it: configure"]


def test_a_file_that_may_not_be_executed_says_how(tool: nacre.Tool, tmp_path: Path) -> None:
    (tmp_path / "place" / "script").write_text("echo hi\n")
    assert hinted(tool, "./script") == [
        "./script is not executable: chmod +x it, or name the program that runs it"
    ]
    assert hinted(tool, "mkdir d; ./d") == ["./d is a directory"]
    assert hinted(tool, "exit 126") == []
    assert hinted(tool, "bash script") == []


# Hints about ports, disks, memory and locks


def test_a_port_in_use_names_the_process_that_holds_it(tool: nacre.Tool) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        serve = f"{PYTHON} -m http.server --bind 127.0.0.1 {port}"
        (said,) = hinted(tool, serve)
        assert said.startswith(f"port {port} is held by process {os.getpid()} (")
        node = f"echo 'Error: listen EADDRINUSE: address already in use :::{port}'; exit 1"
        assert hinted(tool, node) == [said]
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            elsewhere = other.getsockname()[1]
            both = f": {elsewhere} {port}; echo 'Address already in use'; exit 1"
            assert hinted(tool, both) == []
    # The port is free again, so there is no hint.
    assert hinted(tool, node) == []
    assert hinted(tool, "echo 'Address already in use'; exit 1") == []


def test_a_disk_that_is_full_is_named(tmp_path: Path) -> None:
    """Run the command in a separate mount namespace with a very small disk."""
    unshare = shutil.which("unshare")
    place = tmp_path / "small"
    place.mkdir()
    code = f"""if True:
        import nacre
        with nacre.Tool(cwd={str(place)!r}, place="here") as tool:
            full = tool.call({{"command": "head -c 1000000 /dev/zero > big"}})
            print(full.details["hints"])
    """
    script = f'mount -t tmpfs -o size=128k none "$0" && exec {PYTHON} -c "$1"'
    words = [unshare or "", "-rm", "sh", "-c", script, str(place), code]
    if unshare is None or subprocess.run([unshare, "-rm", "true"]).returncode:
        pytest.skip("THIS DID NOT RUN: no namespace can be made here, for a disk that is full")
    said = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert said.stdout == f"['the disk of {place} is full: 0B left (df -h shows all)']\n", said


def test_words_about_a_full_disk_are_not_believed(tool: nacre.Tool) -> None:
    """A write to /dev/full reports a full disk, although the disk has free space."""
    assert hinted(tool, "echo x > /dev/full") == []


def test_a_kill_for_lack_of_memory_is_said() -> None:
    facts = RunFacts(
        script=b"x", cwd=b"/", path=b"", ending=Killed(9), output=b"", out_of_memory=True
    )
    assert hints.find_hints(facts) == (
        "the kernel has killed it to have memory back; it needs less, or the machine more",
    )


def test_a_real_kill_for_lack_of_memory(tmp_path: Path) -> None:
    """Run the command in a separate control group with little memory."""
    group = Path("/sys/fs/cgroup/memory") / f"nacre-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(96 * 1024 * 1024))
    except OSError:
        pytest.skip("THIS DID NOT RUN: it needs root, and the memory controller of cgroup v1")
    try:
        eat = f"{PYTHON} -c 'x = bytearray(1 << 28); print(len(x))'"
        code = f"""if True:
            import nacre, os
            open({str(group / "cgroup.procs")!r}, "w").write(str(os.getpid()))
            open("/proc/self/oom_score_adj", "w").write("-500")
            with nacre.Tool(cwd={str(tmp_path)!r}, place="here") as tool:
                eat = "echo 500 > /proc/self/oom_score_adj; " + {eat!r}
                print(tool.call({{"command": eat}}).details["hints"])
                print(tool.call({{"command": "sleep 0.2; kill -9 $$"}}).details["hints"])
        """
        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        first, second = said.stdout.splitlines()
        assert "the kernel has killed it to have memory back" in first
        assert second == "[]"
    finally:
        eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_a_git_lock_hint_names_a_git_process_or_an_age(tool: nacre.Tool, tmp_path: Path) -> None:
    tool.call({"command": "git init -q . && touch a .git/index.lock"})
    lock = tmp_path / "place" / ".git" / "index.lock"
    os.utime(lock, (0, time.time() - 7200))
    # nacre suspects every git process on this machine, even the git of another test.
    stale = [f"no git runs; {lock} is 2 hours old: remove it, and try again"]
    eventually(lambda: hinted(tool, "git add a") == stale)
    with subprocess.Popen(
        ["git", "hash-object", "--stdin"], cwd=tmp_path / "place", stdin=subprocess.PIPE
    ) as other:
        held = f"process {other.pid} (git hash-object --stdin) runs, and may hold"
        eventually(lambda: hinted(tool, "git add a")[0].startswith(held))
    lock.unlink()
    assert hinted(tool, "git add a") == []
    words = f"echo \"fatal: Unable to create '{lock}': File exists.\"; exit 128"
    assert hinted(tool, words) == [f"{lock} is gone by now; try again"]


# Hints about commands that do not do what the model probably wants


@pytest.mark.parametrize(
    "command", ["cd /tmp", "mkdir -p d && cd d", "pushd / >/dev/null", "cd /;\n"]
)
def test_a_directory_that_does_not_last_says_so(tool: nacre.Tool, command: str) -> None:
    assert hinted(tool, command) == [
        "the directory does not last: each call is a new shell; give cwd or a session"
    ]


@pytest.mark.parametrize(
    "command",
    ["cd / && ls", "(cd /)", "cd /; pwd", "echo cd", "cd / | cat", "cd /nope", "f() { cd /; }"],
)
def test_a_directory_that_was_used_says_nothing(tool: nacre.Tool, command: str) -> None:
    assert hinted(tool, command) == []


def test_variables_and_what_was_sourced_do_not_last_either(
    tool: nacre.Tool, tmp_path: Path
) -> None:
    (tmp_path / "place" / "set-up.sh").write_text("X=1\n")
    assert hinted(tool, "export A=b") == [
        "variables do not last: each call is a new shell; give env or a session"
    ]
    for command in ("source ./set-up.sh", ". ./set-up.sh"):
        (said,) = hinted(tool, command)
        assert said.startswith("what was sourced does not last")
    assert hinted(tool, "export A=b; echo $A") == []


def test_a_heredoc_that_was_never_closed_says_where(tool: nacre.Tool) -> None:
    assert hinted(tool, "cat <<EOF\nhello\n EOF") == [
        "the here-document of line 1 was never closed: EOF must stand alone in a line, with "
        "nothing before or behind it"
    ]
    assert hinted(tool, "cat <<EOF\nhello\nEOF") == []
    said = "warning: here-document at line 1 delimited by end-of-file (wanted `EOF')"
    assert hinted(tool, f'echo "{said}"'.replace("`", "\\`")) == []


def test_a_hint_guesses_that_a_command_asked_for_input_and_got_none(tool: nacre.Tool) -> None:
    ask = "printf 'Continue? '; read x || exit 1"
    asked = [MAY_HAVE_ASKED]
    assert hinted(tool, ask) == asked
    assert hinted(tool, ask, stdin="y\n") == []
    assert hinted(tool, "echo failed; exit 1") == []
    assert hinted(tool, "printf done") == []
    assert hinted(tool, f"{PYTHON} -c 'input()'") == asked
    assert hinted(tool, "printf '{\"error\": 1}'; exit 1") == []
    assert hinted(tool, "printf '10%%'; exit 1") == []
    assert hinted(tool, "select x in a b; do echo $x; break; done") == asked
    assert hinted(tool, "select x in a b; do echo $x; break; done", stdin="1\n") == []
    # stdin of the program is the here-document, and `tty` asks for nothing.
    assert hinted(tool, f"{PYTHON} - <<'X'\ninput('q? ')\nX") == []
    assert hinted(tool, "tty") == []
    assert hinted(tool, f"{PYTHON} -c 'print(1 << 2); input()'") == asked


def test_the_prompt_of_a_read_without_input_is_named(tool: nacre.Tool) -> None:
    ask = "read -p 'Name? ' name; echo \"hi $name\""
    asked = [
        "the command asked 'Name?', but stdin is empty; with interactive: true, job write can "
        "answer"
    ]
    assert hinted(tool, ask) == asked
    assert hinted(tool, f"{ask}; exit 3") == asked
    assert hinted(tool, ask, stdin="Ada\n") == []
    assert hinted(tool, f"echo Ada | {{ {ask}; }}") == []
    assert hinted(tool, "while read -p 'Name? ' x; do echo $x; done; echo end") == asked
    assert hinted(tool, "while read -p 'Name? ' x; do echo $x; done < /dev/null") == []
    assert hinted(tool, "if read -p 'Name? ' x; then echo $x; fi") == asked
    assert hinted(tool, "if true; then :; elif read -p 'Name? ' x; then echo; fi") == []


def test_a_question_with_choices_is_noticed_although_git_ends_its_line(
    tool: nacre.Tool,
) -> None:
    asked = [MAY_HAVE_ASKED]
    tool.call({"command": "git init -q; echo 1 > f; git add f; echo 2 > f"})
    assert hinted(tool, "git add -p") == asked
    assert hinted(tool, "echo 'Continue [y/n]? '") == asked
    assert hinted(tool, "echo 'What is this? '") == []


def test_a_null_byte_in_the_output_does_not_break_the_reply(tool: nacre.Tool) -> None:
    said = "printf '/bin/bash: line 1: a\\0b: command not found\\n'; exit 127"
    assert tool.call({"command": said}).details["exit_code"] == 127


def test_a_relative_path_means_nothing_after_a_cd(tool: nacre.Tool, tmp_path: Path) -> None:
    (tmp_path / "place" / "noexec").touch()
    assert hinted(tool, "mkdir sub; cd sub && ./noexe") == []
    (tmp_path / "place" / "build").mkdir()
    assert hinted(tool, "build") == []


def test_the_path_that_the_call_gives_counts(tool: nacre.Tool, tmp_path: Path) -> None:
    assert hinted(tool, "gti", env={"PATH": str(tmp_path)}) == []


def test_a_program_outside_of_the_path_is_not_suggested(tool: nacre.Tool) -> None:
    assert hinted(tool, "PATH=/nonexistent; ls") == [
        "ls is not in the directories of the command's PATH; check PATH"
    ]


def test_a_message_in_place_of_an_editor_gets_no_second_advice(tool: nacre.Tool) -> None:
    tool.call({"command": "git init -q; git config user.email a@b; git config user.name a"})
    commits = "for i in 1 2 3; do git commit -q --allow-empty -m $i; done"
    tool.call({"command": commits})
    reply = tool.call({"command": "git rebase -i HEAD~2"})
    assert "No editor opens here." in reply.text
    assert reply.details["hints"] == []


def test_a_function_with_the_name_of_a_program_needs_no_terminal(tool: nacre.Tool) -> None:
    assert hinted(tool, "nano x; exit 3", timeout=1) != []
    assert hinted(tool, "nano() { return 3; }; nano x") == []


def test_a_success_says_nothing(tool: nacre.Tool) -> None:
    assert hinted(tool, "echo 'Address already in use; No space left on device'") == []
    facts = RunFacts(script=b"x", cwd=b"/", path=b"", ending=Exited(0), output=b"")
    assert hints.find_hints(facts) == ()
