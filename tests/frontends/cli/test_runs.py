"""Runs from any terminal: ps, read, wait, write, kill, attach."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command_line import PROGRAM, run_nacre, run_nacre_bytes
from tests.support.helpers import eventually, named

pytestmark = pytest.mark.slow


def detach(cwd: Path, command: str, *words: str) -> str:
    said = run_nacre("run", "--detach", *words, "--", command, cwd=cwd)
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


def test_ps_is_a_table_with_all_that_one_wants_to_know(tmp_path: Path) -> None:
    assert run_nacre("ps", cwd=tmp_path).stdout.startswith("no runs in this workspace")
    run_nacre("run", "--", "seq 3; exit 3", cwd=tmp_path)
    run = detach(tmp_path, "echo hello; sleep 300.441")
    eventually(lambda: "6B" in run_nacre("ps", cwd=tmp_path).stdout)
    header, live, over = run_nacre("ps", cwd=tmp_path, COLUMNS="200").stdout.splitlines()
    assert header.split() == ["ID", "AGE", "STATE", "OUTPUT", "COMMAND", "DIRECTORY"]
    assert live.split()[0] == run
    assert live.split()[2:6] == ["running", "6B", "echo", "hello;"]
    assert live.endswith(str(tmp_path))
    assert over.split()[0] == "r1"
    assert over.split()[2:5] == ["exit", "3", "6B"]
    narrow = run_nacre("ps", cwd=tmp_path, COLUMNS="60").stdout.splitlines()
    assert max(map(len, narrow)) <= 75
    run_nacre("kill", run, cwd=tmp_path)
    assert "SIGTERM" in run_nacre("ps", cwd=tmp_path).stdout


def test_ps_as_json_and_of_all_workspaces(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run_nacre("run", "--", f"echo {name}", cwd=tmp_path / name)
    (only,) = json.loads(run_nacre("ps", "--json", cwd=tmp_path / "a").stdout)
    assert only["run"] == "r1"
    assert only["state"] == "exited"
    assert (only["exit_code"], only["output_bytes"]) == (0, 2)
    assert only["cwd"] == only["workspace"] == str(tmp_path / "a")
    everything = json.loads(run_nacre("ps", "--json", "--all", cwd=tmp_path).stdout)
    assert [each["run"] for each in everything] == ["r2", "r1"]
    assert len(run_nacre("ps", "--all", "-n", "1", cwd=tmp_path).stdout.splitlines()) == 2


def test_ps_watch_shows_it_again(tmp_path: Path) -> None:
    run_nacre("run", "--", "echo x", cwd=tmp_path)
    watch = subprocess.Popen(
        [PROGRAM, "ps", "--watch"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert watch.stdout is not None
    seen = [watch.stdout.readline().split()[0] for _ in range(4)]
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=10)
    assert seen == ["ID", "r1", "ID", "r1"]
    assert watch.returncode == 130


def test_follow_shows_what_comes_until_the_end_and_not_our_own_words(tmp_path: Path) -> None:
    arguments = json.dumps(
        {"command": "for i in 1 2 3; do echo $i; sleep 0.2; done", "mode": "background"}
    )
    run_nacre("call", "--contract", "phoenix", arguments, cwd=tmp_path)
    followed = run_nacre("read", "r1", "--follow", cwd=tmp_path)
    assert followed.stdout == "1\n2\n3\n"
    assert followed.stderr.startswith("r1: exit 0 after ")
    assert run_nacre("read", "1", "-f", "--lines", "1", cwd=tmp_path).stdout == "3\n"
    assert run_nacre("read", "1", "--from", "2", "--to", "3", cwd=tmp_path).stdout == "2\n3\n"
    assert run_nacre("read", "1", "--grep", "[23]", cwd=tmp_path).stdout == "2:2\n3:3\n"
    wrong = run_nacre("read", "1", "-f", "--grep", "x", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")


def test_follow_begins_with_the_last_lines_however_long_it_is(tmp_path: Path) -> None:
    run_nacre("run", "--contract", "phoenix", "--", "seq 400000", cwd=tmp_path)
    followed = run_nacre("read", "1", "--follow", "-n", "2", cwd=tmp_path)
    assert followed.stdout == "399999\n400000\n"


def test_follow_ends_when_nobody_reads_it_any_more(tmp_path: Path) -> None:
    run = detach(tmp_path, "echo one; sleep 300.448")
    said = subprocess.run(
        ["bash", "-c", f"'{PROGRAM}' read {run} --follow | head -1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert said.stdout == "one\n"
    run_nacre("kill", run, cwd=tmp_path)


def test_what_stands_on_stderr_is_not_hidden(tmp_path: Path) -> None:
    words = ("run", "--contract", "harness", "--", "nosuchcmd")
    assert run_nacre(*words, cwd=tmp_path).returncode == 127
    read = run_nacre("read", "1", cwd=tmp_path)
    assert read.stdout == ""
    assert "on stderr: nacre read r1 --errors" in read.stderr
    assert "nosuchcmd: command not found" in run_nacre("read", "1", "--errors", cwd=tmp_path).stdout
    run = detach(tmp_path, "nosuchcmd")
    run_nacre("wait", run, cwd=tmp_path)
    assert "command not found" in run_nacre("read", run, cwd=tmp_path).stdout


def test_a_run_of_another_workspace_is_named_with_its_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    run_nacre("run", "--", "echo x", cwd=tmp_path / "a")
    said = run_nacre("read", "1", cwd=tmp_path / "b")
    assert said.returncode == 1
    assert f"it belongs to {tmp_path / 'a'}" in said.stderr
    assert run_nacre("read", "1", "--cwd", str(tmp_path / "a"), cwd=tmp_path).stdout == "x\n"


def test_wait_exits_with_its_code(tmp_path: Path) -> None:
    run = detach(tmp_path, "until [ -e go ]; do sleep 0.02; done; exit 7")
    early = run_nacre("wait", run, "--timeout", "0.1", cwd=tmp_path)
    assert early.returncode == 124
    assert "still runs" in early.stderr
    (tmp_path / "go").touch()
    done = run_nacre("wait", run, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.startswith("r1: exit 7 after ")
    assert run_nacre("wait", run, cwd=tmp_path).returncode == 7
    unknown = run_nacre("wait", "r99", cwd=tmp_path)
    assert unknown.returncode == 1
    assert "there is no run r99 in this workspace" in unknown.stderr
    assert "nacre ps" in unknown.stderr


def test_write_reaches_its_stdin(tmp_path: Path) -> None:
    run = detach(tmp_path, "cat; echo end", "--interactive")
    assert run_nacre("write", run, "one", cwd=tmp_path).returncode == 0
    assert run_nacre("write", run, "--no-newline", "two", cwd=tmp_path).returncode == 0
    piped = subprocess.run(
        [PROGRAM, "write", run, "--eof"], cwd=tmp_path, input=b"three\xff", timeout=60
    )
    assert piped.returncode == 0
    run_nacre("wait", run, cwd=tmp_path)
    read = run_nacre_bytes("read", run, cwd=tmp_path)
    assert read.stdout == b"one\ntwothree\xffend\n"
    late = run_nacre("write", run, "x", cwd=tmp_path)
    assert late.returncode == 1
    assert "r1 has ended (exited)" in late.stderr


def test_write_to_one_that_has_no_stdin_says_so(tmp_path: Path) -> None:
    run = detach(tmp_path, "sleep 300.442")
    said = run_nacre("write", run, "x", cwd=tmp_path)
    assert said.returncode == 1
    assert "started without an open stdin" in said.stderr
    run_nacre("kill", run, cwd=tmp_path)


def test_a_pipe_into_write_waits_for_a_slow_reader_and_loses_nothing(tmp_path: Path) -> None:
    run = detach(tmp_path, "sleep 0.5; wc -c", "--interactive")
    piped = subprocess.run(
        [PROGRAM, "write", run, "--eof"], cwd=tmp_path, input=bytes(5 << 20), timeout=60
    )
    assert piped.returncode == 0
    run_nacre("wait", run, cwd=tmp_path)
    assert run_nacre("read", run, cwd=tmp_path).stdout == f"{5 << 20}\n"


def test_a_pipe_into_write_ends_with_its_run(tmp_path: Path) -> None:
    run = detach(tmp_path, "sleep 300.443", "--interactive")
    pipe = subprocess.Popen(
        [PROGRAM, "write", run], cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert pipe.stdin is not None
    assert pipe.stderr is not None
    os.set_blocking(pipe.stdin.fileno(), False)
    taken, taken_at = 0, time.monotonic()

    def feed() -> bool:
        """Whether it has ended, by itself: its stdin stays open."""
        nonlocal taken, taken_at
        try:
            taken += os.write(pipe.stdin.fileno(), bytes(1 << 16))  # type: ignore[union-attr]
            taken_at = time.monotonic()
        except (BlockingIOError, BrokenPipeError):
            time.sleep(0.01)
        return pipe.poll() is not None

    # Until it waits for room: it has taken more than fits the pipe, and takes nothing for a while.
    eventually(lambda: feed() or (taken > 1 << 20 and time.monotonic() - taken_at > 0.5), 30)
    run_nacre("kill", run, cwd=tmp_path)
    eventually(feed, 30)
    assert pipe.returncode == 1
    # The second, where it was only slow and not yet waiting.
    assert re.search(b"its stdin is closed|r1 has ended", pipe.stderr.read())
    pipe.stdin.close()
    pipe.stderr.close()


def test_kill_gives_a_grace_and_then_insists(tmp_path: Path) -> None:
    run = detach(tmp_path, "trap '' TERM; setsid -f sleep 300.444; while :; do sleep 0.05; done")
    eventually(lambda: named("300.444"))
    begin = time.monotonic()
    said = run_nacre("kill", run, "--grace", "0.3", cwd=tmp_path)
    assert said.returncode == 0
    assert said.stderr.startswith("r1: SIGKILL after ")
    assert time.monotonic() - begin < 10
    assert not named("300.444")


def test_kill_with_a_signal_only_sends_it(tmp_path: Path) -> None:
    script = (
        "exec 2>/dev/null; trap 'echo usr1; exit 0' USR1; echo up; while :; do sleep 0.05; done"
    )
    run = detach(tmp_path, script)
    eventually(lambda: run_nacre("read", run, cwd=tmp_path).stdout == "up\n")
    assert run_nacre("kill", run, "--signal", "SIGUSR1", cwd=tmp_path).returncode == 0
    assert run_nacre("wait", run, cwd=tmp_path).returncode == 0
    assert run_nacre("read", run, cwd=tmp_path).stdout == "up\nusr1\n"
    wrong = run_nacre("kill", run, "--signal", "NOPE", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "there is no signal 'NOPE'" in wrong.stderr


def test_kill_reaches_a_run_inside_another_program(tmp_path: Path) -> None:
    """By what identifies it: nobody there can be asked."""
    host = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import nacre; print(nacre.Tool('harness').call("
            "{'command': 'echo in; sleep 300.445'}).details)",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: "running" in run_nacre("ps", cwd=tmp_path).stdout)
    write = run_nacre("write", "1", "x", cwd=tmp_path)
    assert "runs in another program" in write.stderr
    assert run_nacre("wait", "1", "--timeout", "0.2", cwd=tmp_path).returncode == 124
    assert run_nacre("kill", "1", cwd=tmp_path).returncode == 0
    said, _ = host.communicate(timeout=20)
    assert "'signal': 'SIGTERM'" in said
    assert not named("300.445")


def test_attach_shows_everything_passes_input_on_and_exits_with_its_code(tmp_path: Path) -> None:
    run = detach(tmp_path, "echo hello; read x; echo got $x; exit 6", "--interactive")
    attached = subprocess.run(
        [PROGRAM, "attach", run],
        cwd=tmp_path,
        input="there\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (attached.stdout, attached.returncode) == ("hello\ngot there\n", 6)
    assert attached.stderr.startswith("r1: exit 6 after ")


def test_ctrl_c_lets_go_and_the_run_goes_on(tmp_path: Path) -> None:
    run = detach(tmp_path, "echo on; sleep 300.446")
    attached = subprocess.Popen(
        [PROGRAM, "attach", run],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert attached.stdout is not None
    assert attached.stdout.readline() == "on\n"
    attached.send_signal(signal.SIGINT)
    _, said = attached.communicate(timeout=10)
    assert attached.returncode == 130
    assert "r1 goes on" in said
    assert named("300.446")
    run_nacre("kill", run, cwd=tmp_path)


@pytest.mark.parametrize("words", [["read"], ["wait"], ["kill"], ["attach"], ["write", "x"]])
def test_what_is_no_run_is_said(words: list[str], tmp_path: Path) -> None:
    said = run_nacre(words[0], "bogus", *words[1:], cwd=tmp_path)
    assert said.returncode == 1
    assert "is no run; write its number" in said.stderr
    assert "Traceback" not in said.stderr


def test_the_whole_story_from_the_command_line(tmp_path: Path) -> None:
    """Start it from a call, kill whoever has called, see it, read it, stop it."""
    arguments = json.dumps({"command": "echo up; sleep 300.447", "mode": "background"})
    caller = subprocess.Popen(
        [PROGRAM, "call", "--contract", "phoenix", arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert caller.stdout is not None
    reply = json.loads(caller.stdout.readline())
    caller.kill()
    caller.communicate()
    file = Path(reply["details"]["output_file"])
    eventually(lambda: file.read_text() == "up\n")
    assert "running" in run_nacre("ps", cwd=tmp_path).stdout
    assert run_nacre("read", "1", cwd=tmp_path).stdout == "up\n"
    pid = reply["details"]["pid"]
    os.killpg(pid, signal.SIGKILL)  # as the reminder says
    eventually(lambda: file.read_text().endswith("]\n"))
    assert file.read_text() == "up\n\n\n[background process failed: signal 9 (SIGKILL)]\n"
    assert "SIGKILL" in run_nacre("ps", cwd=tmp_path).stdout
