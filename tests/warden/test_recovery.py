"""Tests that kill the host or the warden at random moments.

Runs continue, output that was read is not lost, and no call hangs. `NACRE_KILLS` is the number of
random moments; `make chaos` tries 200.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pytest

import nacre
from nacre import Exited, Killed, Lost
from nacre.store import run_owner, stored_run
from nacre.warden import endpoint
from tests.support import wardens
from tests.support.helpers import WAIT_FOR_GO, alive, eventually, named

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("NACRE_KILLS", "6"))
LINES = 20
# Writes lines for about a quarter of a second, and exits with a code that is unlikely by accident.
SCRIPT = (
    f": > started; for i in $(seq {LINES}); do echo line $i; sleep 0.01; done; : > done; exit 37"
)
WHOLE = "".join(f"line {i}\n" for i in range(1, LINES + 1))

HARNESS = """
import sys, nacre
contract, place, arguments, options = eval(sys.argv[1])
with nacre.Tool(contract, place=place, options=options) as tool:
    print("ready", flush=True)
    tool.call({"command": sys.argv[2], **arguments})
    print("answered", flush=True)
    sys.stdin.read()
"""
WAYS: list[tuple[str, Literal["auto", "warden"], dict[str, Any], dict[str, Any]]] = [
    ("phoenix", "auto", {"mode": "background"}, {}),
    ("pi", "auto", {"async": True}, {"async": True}),
    ("pi", "auto", {}, {"auto_background": 0.1}),
    ("harness", "warden", {}, {}),
]


def harness(way: object, script: str, cwd: Path) -> "subprocess.Popen[str]":
    """Start a host process that makes one call of the tool."""
    return subprocess.Popen(
        [sys.executable, "-c", HARNESS, repr(way), script],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_harness(seed: int, place: Path) -> None:
    dice = random.Random(seed)
    way = dice.choice(WAYS)
    place.mkdir()
    process = harness(way, SCRIPT, place)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(dice.uniform(0, 0.35))
    process.kill()
    process.communicate()
    with nacre.Tool("harness", cwd=place) as tool:
        # The host may have sent its request just before the kill, so the run may appear late.
        eventually(lambda: tool.runs() or not (place / "started").exists())
        time.sleep(0.05)
        runs = tool.runs()
        assert len(runs) <= 1
        assert bool(runs) >= (place / "started").exists()
        for run in runs:
            outcome = run.wait(20)
            assert outcome is not None, run
            assert outcome.ending == Exited(37), (way, outcome)
            assert run.read().text == WHOLE, (way, outcome)
            assert (place / "done").exists()
            if way[0] == "phoenix":
                file = stored_run.find_run(
                    stored_run.parse_run_id(run.id), os.fsencode(place)
                ).directory
                text = Path(f"{file}/output").read_text()
                assert text == f"{WHOLE}\n\n[background process failed: exit code 37]\n"


def kill_warden(seed: int, place: Path, state: Path) -> None:
    dice = random.Random(seed)
    way = dice.choice(WAYS)
    place.mkdir()
    contract, where, arguments, options = way
    # One process of the script ignores SIGPIPE, so a closed pipe does not end it.
    script = f"trap '' TERM; (trap '' PIPE; sleep 300.{seed % 1000:03}; :) & {SCRIPT}; wait"
    replies: list[nacre.Reply] = []
    with nacre.Tool(contract, cwd=place, place=where, options=options) as tool:

        def call() -> None:
            replies.append(tool.call({"command": script, **arguments}))

        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(dice.uniform(0, 0.3))
        for warden in wardens.find(state):
            os.kill(warden.pid, signal.SIGKILL)
        thread.join(20)
        assert not thread.is_alive(), f"{way}: a call hangs after its warden was killed"
        for run in tool.runs():
            assert run.ending is None or run.state in ("lost", "exited", "killed", "not_started")
            # nacre finds the living processes of the run by the identity in the run record.
            run.end(grace=0.2)
        left = f"sleep 300.{seed % 1000:03}"
        eventually(lambda: not named(left))
        assert tool.call({"command": "echo again"}).text  # starts a new warden if needed
        for run in tool.runs():
            assert run.state != "running"


def test_killing_the_harness_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    for seed in range(KILLS):
        kill_harness(20261116 + seed, tmp_path / f"place{seed}")


def test_killing_the_warden_at_any_moment_hangs_nothing(tmp_path: Path, home: Path) -> None:
    for seed in range(max(1, KILLS // 2)):
        kill_warden(seed, tmp_path / f"place{seed}", home)


def test_a_new_harness_lists_reads_waits_writes_and_signals(tmp_path: Path) -> None:
    script = (
        "exec 2>/dev/null; trap 'echo hup' HUP; echo first; read line; echo $line; "
        "while :; do sleep 0.1; done"
    )
    code = (
        "import nacre, os\n"
        f"nacre.Tool('harness').start({{'command': {script!r}}}, interactive=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.communicate()
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        (run,) = tool.runs()
        assert (run.state, run.exit_code, run.command) == ("running", None, script)
        eventually(lambda: run.read().text == "first\n")
        cursor = run.read().cursor
        assert run.wait(0.1) is None
        run.write("second\n")
        eventually(lambda: run.read(cursor).text == "second\n")
        cursor = run.read(cursor).cursor
        run.signal("HUP")
        eventually(lambda: run.read(cursor).text == "hup\n")
        outcome = run.end(grace=1)
        assert outcome is not None
        assert outcome.ending == Killed(15)
        assert outcome.output.head == b"first\nsecond\nhup\n"
        assert run.read(cursor).over


def test_what_a_killed_warden_ran_is_finished_where_that_can_be_known(
    tmp_path: Path, home: Path
) -> None:
    """The next warden watches the shell. It learns the exit code, but reads no more output."""
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        run = tool.start({"command": f"echo before; trap '' PIPE; {WAIT_FOR_GO}; exit 6"})
        eventually(lambda: run.read().text == "before\n")
        wardens.kill(home)
        assert run.state == "running"  # the shell is running, although no process reads its output
        with pytest.raises(nacre.Refused, match="can only be ended"):
            run.write("x")
        other = tool.start({"command": "true"})  # starts a new warden
        other.wait(10)
        (tmp_path / "go").touch()
        outcome = run.wait(10)
        assert outcome is not None
        assert outcome.ending == Exited(6)
        assert run.read().text == "before\n"


def test_a_run_that_ended_without_a_warden_is_lost(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        reply = tool.call({"command": "echo x; sleep 300.777", "mode": "background"})
        run = tool.run(reply.run or "")
        eventually(lambda: run.read().text == "x\n")
        wardens.kill(home)
        run.end(grace=1)
        assert run.state == "lost"
        assert not named("300.777")
        tool.start({"command": "true"}).wait(10)
        file = Path(reply.details["output_file"])
        eventually(lambda: file.read_text().endswith("]\n"))
        # If init reaps no orphans, the new warden can still read the exit status of the zombie.
        lost = "error: the process that ran it was killed; its exit code is unknown"
        last = lost if isinstance(run.ending, Lost) else "failed: signal 15 (SIGTERM)"
        assert file.read_text() == f"x\n\n\n[background process {last}]\n"
        assert isinstance(run.ending, Lost) or run.ending == Killed(15)
        assert run.read().text == "x\n"


def test_runs_of_another_boot_are_lost_although_their_pids_are_in_use(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        run = tool.start({"command": "sleep 300.778"})
        (sleeper,) = _eventually_named("300.778")
        monkeypatch.setattr(run_owner, "boot_id", lambda: "another")
        assert run.state == "lost"
        run.end(grace=0.1)  # must not signal any process
        assert alive(sleeper)
        monkeypatch.undo()
        monkeypatch.setenv("NACRE_HOME", str(home))
        assert run.state == "running"
        run.end(grace=1)


def _eventually_named(marker: str) -> list[int]:
    eventually(lambda: named(marker))
    return [each.pid for each in named(marker)][:1]


def test_the_next_call_after_a_killed_warden_starts_a_new_one(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path, place="warden") as tool:
        assert tool.call({"command": "echo 1"}).details["stdout"] == "1\n"
        first = wardens.kill(home)
        assert tool.call({"command": "echo 2"}).details["stdout"] == "2\n"
        (second,) = wardens.find(home)
        assert second.pid != first.pid
        assert endpoint.read_owner() is not None


def test_a_call_whose_warden_is_killed_is_answered_with_what_is_known(
    tmp_path: Path, home: Path
) -> None:
    replies: list[nacre.Reply] = []
    with nacre.Tool("harness", cwd=tmp_path, place="warden") as tool:
        command = {"command": "echo before; sleep 300.779"}
        thread = threading.Thread(target=lambda: replies.append(tool.call(command)))
        thread.start()
        # After a short time, the output of the run is in a file.
        eventually(lambda: tool.runs() and tool.runs()[0].read().text == "before\n")
        wardens.kill(home)
        thread.join(10)
        (run,) = tool.runs()
        run.end(grace=0.2)
    (reply,) = replies
    assert reply.is_error
    assert reply.details["stdout"] == "before\n"
    assert "exitCode" not in reply.details
    assert not named("300.779")
