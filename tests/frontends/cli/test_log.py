"""Tests of `nacre log`, and of the contents of the audit log."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.store.audit_log import AuditLog
from tests.support.command_line import PROGRAM, run_nacre
from tests.support.helpers import eventually

pytestmark = pytest.mark.slow


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "audit.jsonl").read_text().splitlines()]


def log(*words: str) -> list[str]:
    done = run_nacre("log", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_line_has_decision_ending_sizes_and_what_was_dropped_by_name(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    (tmp_path / ".git").mkdir()
    (tmp_path / "d").mkdir()
    with nacre.Tool("phoenix", cwd=tmp_path / "d") as tool:
        tool.call({"command": "echo SECRET$((6 * 7))"})
        tool.call({"command": "rm -rf /"})
        tool.call({"mode": "slow"})
    ran, refused, bad = lines(home)
    assert {key: ran[key] for key in ran if key not in ("time", "seconds", "dropped")} == {
        "contract": "phoenix",
        "tool": "bash",
        "workspace": str(tmp_path),
        "command": "echo SECRET$((6 * 7))",
        "cwd": f"{tmp_path}/d",
        "run": "r1",
        "decision": "run",
        "ending": "Exited",
        "exit_code": 0,
        "stdout_bytes": 9,
        "stderr_bytes": None,
        "left_running": 0,
    }
    assert "MY_TOKEN" in ran["dropped"]
    assert (refused["decision"], refused["rule"]) == ("refuse", "disk.remove")
    assert refused["command"] == "rm -rf /"
    assert (bad["decision"], bad["command"], bad["refused"]) == (
        "refuse",
        None,
        "command is required",
    )
    text = (home / "audit.jsonl").read_text()
    assert "hunter2" not in text
    assert "SECRET42" not in text


def test_values_of_bad_arguments_are_not_logged(home: Path) -> None:
    with nacre.Tool("pi") as tool:
        said = [
            tool.call({"command": "ls", "env": {"A": ["hunter2"]}}).text,
            tool.call({"command": "ls", "password": "hunter2"}).text,
        ]
    assert all("hunter2" in each for each in said)
    assert "hunter2" not in (home / "audit.jsonl").read_text()


def test_a_call_whose_caller_stopped_waiting_is_logged(home: Path) -> None:
    async def given_up(tool: nacre.Tool) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tool.acall({"command": "echo hi; sleep 60"}), 0.3)

    with nacre.Tool("harness") as tool:
        asyncio.run(given_up(tool))
    (line,) = lines(home)
    assert (line["ending"], line["stdout_bytes"]) == ("Cancelled", 3)


def test_half_a_character_in_a_command_is_shown(home: Path) -> None:
    del home
    with nacre.Tool("harness") as tool:
        tool.call({"command": "echo \ud800"})
    (line,) = log()
    assert "echo \\xd800" in line


def test_the_command_is_logged_as_it_was_given(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path) as tool:
        tool.call({"command": " cd / && pwd "})
    (line,) = lines(home)
    assert (line["command"], line["cwd"]) == (" cd / && pwd ", "/")


def test_many_writers_lose_no_line_and_mix_none(home: Path) -> None:
    code = """if True:
        import sys, nacre
        tool = nacre.Tool("harness")
        for number in range(20): tool.call({"command": f": {sys.argv[1]} {number} " + "x" * 5000})
    """
    running = [subprocess.Popen([sys.executable, "-c", code, str(i)]) for i in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    assert sorted(line["command"].split()[1:3] for line in lines(home)) == sorted(
        [str(i), str(number)] for i in range(4) for number in range(20)
    )


def test_a_full_log_is_put_aside(home: Path) -> None:
    audit = AuditLog(max_bytes=1000)
    for number in range(30):
        audit.begin({"command": f"{number}"}).end({"ending": "Exited"})
    audit.close()
    assert audit.problem is None
    names = sorted(each.name for each in home.iterdir())
    assert names[:3] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert [json.loads(line)["command"] for line in log("--json", "-n", "30")] == [
        str(number) for number in range(30)
    ]


def test_people_get_one_line_a_call(tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path, options={"timeout": 0.3}) as tool:
        for command in ("echo hi", "exit 3", "kill -9 $$", "sleep 60", "rm -rf /", "a\tb\x1b[31m"):
            tool.call({"command": command})
    said = [re.sub(r" +", " ", line) for line in log()]
    wanted = [
        rf"\d\d:\d\d:\d\d phoenix r1 exit 0 \d\.\d\ds 3B echo hi \({tmp_path}\)",
        rf"\d\d:\d\d:\d\d phoenix r2 exit 3 \d\.\d\ds 0B exit 3 \({tmp_path}\)",
        rf"\d\d:\d\d:\d\d phoenix r3 signal 9 \d\.\d\ds 0B kill -9 \$\$ \({tmp_path}\)",
        rf"\d\d:\d\d:\d\d phoenix r4 timed out \d\.\d\ds 0B sleep 60 \({tmp_path}\)",
        rf"\d\d:\d\d:\d\d phoenix - refused 0B rm -rf / \[refused by .*\] \({tmp_path}\)",
        rf"\d\d:\d\d:\d\d phoenix r5 exit 127 \d\.\d\ds \d+B a b\\x1b\[31m \({tmp_path}\)",
    ]
    assert len(said) == len(wanted)
    for line, pattern in zip(said, wanted, strict=True):
        assert re.fullmatch(pattern, line), line


def test_the_last_lines_only(tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        for number in range(5):
            tool.call({"command": f": {number}"})
    assert [json.loads(line)["command"] for line in log("--json", "-n", "2")] == [": 3", ": 4"]
    assert log("-n", "0") == []


def test_no_log_yet_is_no_error() -> None:
    assert log() == []


def test_a_line_that_cannot_be_read_is_said_and_the_rest_is_shown(home: Path) -> None:
    with nacre.Tool("harness") as tool:
        tool.call({"command": "echo hi"})
    with (home / "audit.jsonl").open("ab") as file:
        file.write(b'{"time": "half\n[1]\n{"a": 1}\n')
    said = log()
    assert len(said) == 4
    assert "echo hi" in said[0]
    assert said[1].startswith("(a line that cannot be read: ")
    assert said[2].startswith("(a line that cannot be read: ")


def test_following_goes_on_when_a_new_file_has_begun(home: Path) -> None:
    audit = AuditLog(max_bytes=300)

    def note(number: int) -> None:
        audit.begin({"contract": "x", "command": f"n{number}"}).end({"ending": "Exited"})

    note(0)
    follower = subprocess.Popen([PROGRAM, "log", "-f", "--json"], stdout=subprocess.PIPE)
    assert follower.stdout is not None
    os.set_blocking(follower.stdout.fileno(), False)
    heard = b""

    def hear() -> bytes:
        nonlocal heard
        heard += follower.stdout.read() or b"" if follower.stdout else b""
        return heard

    eventually(lambda: b"n0" in hear())
    for number in range(1, 8):
        note(number)
        eventually(lambda n=number: b"n%d" % n in hear())  # type: ignore[misc]
    follower.terminate()
    follower.wait(10)
    follower.stdout.close()
    audit.close()
    assert [json.loads(line)["command"] for line in heard.splitlines()] == [
        f"n{number}" for number in range(8)
    ]
    assert (home / "audit.jsonl.1").exists()
