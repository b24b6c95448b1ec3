"""Tests of background commands of the phoenix contract, and of leftover processes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import nacre
from nacre.procfs import processes
from tests.support import wardens
from tests.support.command_line import run_nacre
from tests.support.helpers import WAIT_FOR_GO, alive, end, eventually, named

pytestmark = pytest.mark.slow


def start(tool: nacre.Tool, command: str) -> tuple[int, Path]:
    reply = tool.call({"command": command, "mode": "background"})
    assert not reply.is_error, reply.text
    return reply.details["pid"], Path(reply.details["output_file"])


def test_it_goes_on_when_the_harness_is_killed(tmp_path: Path) -> None:
    """A program starts a server and is killed. Other programs then list, read and stop the run."""
    (tmp_path / "index.html").write_text("hello")
    code = (
        "import nacre, os, sys\n"
        "reply = nacre.Tool('phoenix').call({'mode': 'background', 'command':\n"
        "    'python3 -u -m http.server 0 --bind 127.0.0.1'})\n"
        "print(reply.details['output_file'], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    harness = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert harness.returncode == -signal.SIGKILL
    file = Path(harness.stdout.strip())
    eventually(lambda: "Serving HTTP on" in file.read_text())
    listed = run_nacre("ps", cwd=tmp_path).stdout
    assert "running" in listed
    assert "http.server" in listed
    port = int(file.read_text().split("port ")[1].split()[0])
    got = run_nacre("run", "--", f"curl -s 127.0.0.1:{port}/index.html", cwd=tmp_path)
    assert got.stdout == "hello"
    assert '"GET /index.html' in run_nacre("read", "1", cwd=tmp_path).stdout
    killed = run_nacre("kill", "1", cwd=tmp_path)
    assert (killed.returncode, killed.stdout) == (0, "")
    assert file.read_text().endswith("\n\n[background process failed: signal 15 (SIGTERM)]\n")
    assert "background process" not in run_nacre("read", "1", cwd=tmp_path).stdout


def test_it_leads_its_own_group_and_has_no_terminal(tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        pid, file = start(tool, "read x < /dev/tty; sleep 300.661 & sleep 300.662")
        eventually(lambda: len(named("300.66")) >= 2)
        process = processes.read_process(pid)
        assert process is not None
        assert (process.group, process.session) == (pid, pid)
        # The reply tells the model to stop the run with this command.
        tool.call({"command": f"kill -9 -{pid}"})
        eventually(lambda: "signal 9 (SIGKILL)" in file.read_text())
        assert not named("300.66")
        assert "/dev/tty" in file.read_text()


def test_it_has_no_time_limit(tmp_path: Path) -> None:
    options = {"timeout": 0.2, "slow_timeout": 0.2}
    with nacre.Tool("phoenix", cwd=tmp_path, options=options) as tool:
        assert "timed out" in tool.call({"command": "sleep 5"}).text
        _, file = start(tool, "sleep 0.8; echo alive")
        eventually(lambda: file.read_text() == "alive\n\n\n[background process completed]\n")


def test_a_failure_to_start_is_an_error_reply(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        home.mkdir(mode=0o700)
        (home / "runs").write_text("in the way")
        reply = tool.call({"command": "touch made", "mode": "background"})
        assert reply.is_error
        assert reply.text.startswith("[cannot run command: the output cannot be stored: ")
        (home / "runs").unlink()
        huge = tool.call({"command": "x" * (80 << 20), "mode": "background"})
        assert huge.is_error
        assert "too large for the warden" in huge.text
    assert not (tmp_path / "made").exists()
    with nacre.Tool("phoenix", cwd=tmp_path, place="here") as tool:
        reply = tool.call({"command": "touch made", "mode": "background"})
        assert reply.is_error
        assert reply.text.startswith("[cannot run command: background runs are not available")
    assert not (tmp_path / "made").exists()


def test_a_flood_ends_at_the_disk_limit_and_the_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config" / "nacre" / "config.toml"
    config.parent.mkdir(parents=True)
    for full, last in (("close", "signal 13 (SIGPIPE)"), ("stop", "signal 15 (SIGTERM)")):
        config.write_text(f'[store]\nrun = "100KB"\nfull = "{full}"\n')
        with nacre.Tool("phoenix", cwd=tmp_path) as tool:
            _, file = start(tool, "exec yes")
            eventually(lambda: "[background process" in file.read_text())  # noqa: B023
            text = file.read_text()
            assert text[:102400] == "y\n" * 51200
            assert text[102400:] == (
                "\n[output stopped: the disk limit of 100KB is reached]\n"
                f"\n\n[background process failed: {last}]\n"
            )
            assert tool.runs()[0].read().text == "y\n" * 51200
            # A command in the foreground has the same disk limit.
            reply = tool.call({"command": "exec yes"})
            assert reply.text.startswith(f"[command failed: {last}]\n")
    monkeypatch.undo()


def test_what_a_command_left_running_still_reaches_its_log(tmp_path: Path) -> None:
    """When the late output comes, `nacre run` has exited. The warden holds the leftover pipe."""
    said = run_nacre(
        "run", "--", f"echo now; ({WAIT_FOR_GO}; echo later; sleep 300.663) &", cwd=tmp_path
    )
    assert said.stdout == "now\n"
    assert "[left running:" in said.stderr
    (tmp_path / "go").touch()
    eventually(lambda: run_nacre("read", "1", cwd=tmp_path).stdout == "now\nlater\n")
    assert "exit 0 +" in run_nacre("ps", cwd=tmp_path).stdout
    assert run_nacre("kill", "1", cwd=tmp_path).returncode == 0
    assert not named("300.663")


def test_many_that_leave_something_at_once_share_one_warden(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        for number in range(8):
            command = f"({WAIT_FOR_GO}; echo late {number}) & echo {number}"
            assert "[left running:" in tool.call({"command": command}).text
        (tmp_path / "go").touch()
        for number in range(8):
            eventually(
                lambda n=number: tool.run(f"r{n + 1}").read().text == f"{n}\nlate {n}\n"  # type: ignore[misc]
            )
    eventually(lambda: len(wardens.find(home)) == 1)


def test_what_a_command_of_the_warden_left_running_reaches_its_log(tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path, place="warden") as tool:
        _, file = start(tool, f"echo now; ({WAIT_FOR_GO}; echo later) &")
        eventually(lambda: "[background process completed]" in file.read_text())
        (tmp_path / "go").touch()
        eventually(lambda: file.read_text().endswith("later\n"))
        assert file.read_text() == "now\n\n\n[background process completed]\nlater\n"
        assert tool.runs()[0].read().text == "now\nlater\n"
        (tmp_path / "go").unlink()
        reply = tool.call({"command": f"({WAIT_FOR_GO}; echo later) & echo small"})
        assert reply.text.startswith("small\n[left running: ")
        (tmp_path / "go").touch()
        run = tool.run(reply.run or "")
        eventually(lambda: run.read().text == "small\nlater\n")


def test_here_means_that_nothing_is_handed_over(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path, place="here") as tool:
        outcome = tool.answer({"command": "sleep 300.664 & echo x"})
        assert len(outcome.left_running) == 1
        assert not wardens.find(home)
        end(outcome.left_running)


def test_a_foreground_call_through_the_warden_is_the_same_call(tmp_path: Path) -> None:
    commands = ["echo a; echo b >&2; exit 3", "kill -9 $$", "sleep 5", "seq 300000", "nope", "exit"]
    options = {"timeout": 2.0}
    with (
        nacre.Tool("harness", cwd=tmp_path, options=options) as here,
        nacre.Tool("harness", cwd=tmp_path, options=options, place="warden") as there,
    ):
        for command in commands:
            assert here.call({"command": command}) == msgspec.structs.replace(
                there.call({"command": command}), run=f"r{commands.index(command) * 2 + 1}"
            )


def test_listeners_hear_the_same_from_the_warden(tmp_path: Path) -> None:
    heard: list[nacre.Event] = []
    with nacre.Tool("phoenix", cwd=tmp_path, place="warden") as tool:
        reply = tool.call({"command": "seq 200000"}, listen=heard.append)
    assert isinstance(heard[0], nacre.Started)
    assert isinstance(heard[-1], nacre.Finished)
    assert heard[-1].outcome.run == reply.run
    chunks = [each for each in heard if isinstance(each, nacre.Chunk)]
    assert sum(len(each.data) + each.skipped for each in chunks) == reply.details["output"]["bytes"]


def test_a_listener_that_wants_every_byte_gets_it_from_the_warden(tmp_path: Path) -> None:
    got = bytearray()

    def slow(event: nacre.Event) -> None:
        if isinstance(event, nacre.Chunk):
            assert not event.skipped
            got.extend(event.data)
            time.sleep(0.001)

    wish = nacre.Listening(listener=slow, full=nacre.Full.WAIT, buffer=65536, linger=None)
    with nacre.Tool("phoenix", cwd=tmp_path, place="warden") as tool:
        tool.call({"command": "seq 500000"}, listen=wish)
    assert bytes(got) == b"".join(b"%d\n" % number for number in range(1, 500001))


def test_cancelling_ends_what_runs_in_the_warden(tmp_path: Path) -> None:
    token = nacre.CancelToken()

    def heard(event: nacre.Event) -> None:
        if isinstance(event, nacre.Chunk):
            token.cancel()

    with nacre.Tool("phoenix", cwd=tmp_path, place="warden") as tool:
        command = {"command": "echo up; setsid sleep 300.665 & sleep 300.665"}
        reply = tool.call(command, listen=heard, cancel=token)
    assert reply.text == "[command cancelled]\nup\n"
    assert not named("300.665")


def test_closing_a_tool_leaves_what_was_handed_back(tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        pid, _ = start(tool, "sleep 300.666")
    assert alive(pid)
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        tool.runs()[0].end(grace=1)
    assert not alive(pid)
