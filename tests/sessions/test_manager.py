"""Tests of sessions through `nacre.Tool`: commands in order, parallel sessions, failures."""

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nacre
from nacre.process.process_tree import send_signal
from nacre.procfs import processes
from nacre.sessions import lease
from nacre.store import session_files as files
from tests.support import wardens
from tests.support.command_line import PROGRAM, run_nacre
from tests.support.helpers import WAIT_FOR_GO, alive, eventually, has_exited, named

pytestmark = pytest.mark.slow

NO_SETUP = {"snapshot": False}


def text(tool: nacre.Tool, command: str, **more: object) -> str:
    reply = tool.call({"command": command, **more})
    return reply.text.partition("\n\n")[0].removesuffix("\n")


def waiting(parent: int | None = None) -> list[int]:
    """Return the pids of the prewarmed shells of `parent`, by default of this process."""
    parent = parent or os.getpid()
    return [
        each.pid
        for each in processes.read_all_processes().values()
        if each.parent == parent and each.alive and "_nacre_in=" in processes.command_line(each.pid)
    ]


def test_calls_of_one_session_run_in_order_from_many_threads(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        text(tool, "n=0")

        def call() -> None:
            for _ in range(5):
                text(tool, "m=$n; sleep 0.002; n=$((m + 1))")

        threads = [threading.Thread(target=call) for _ in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert text(tool, "echo $n") == "30"


def test_calls_of_one_session_run_in_order_from_many_processes(tmp_path: Path) -> None:
    command = [PROGRAM, "run", "--session", "one", "--", "m=$n; sleep 0.05; n=$((m + 1))"]
    processes = [subprocess.Popen(command, cwd=tmp_path) for _ in range(6)]
    assert [each.wait(60) for each in processes] == [0] * 6
    with nacre.Tool(cwd=tmp_path, session="one") as tool:
        assert text(tool, "echo $n") == "6"


def test_sessions_run_side_by_side(tmp_path: Path) -> None:
    """Each command waits until all four commands have started."""
    wait = "until [ $(ls begun* | wc -l) = 4 ]; do sleep 0.05; done"

    async def main() -> list[str]:
        with nacre.Tool(cwd=tmp_path) as tool:
            calls = [
                tool.acall(
                    {"command": f"x={i}; touch begun{i}; {wait}; echo $x", "session": f"s{i}"}
                )
                for i in range(4)
            ]
            return [reply.text for reply in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [f"{i}\n" for i in range(4)]


def _sleeps(process: processes.Process) -> bool:
    return processes.command_line(process.pid) == "sleep 60.57"


def test_a_session_survives_the_harness_and_its_kill(tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import nacre, sys
        tool = nacre.Tool("pi", session="work", options={"snapshot": False})
        tool.call({"command": "x=5; f() { echo f $x; }"})
        print("ready", flush=True)
        tool.call({"command": "x=6; sleep 60.57"})
        """
    )
    harness = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    assert harness.stdout.readline() == "ready\n"
    eventually(lambda: any(map(_sleeps, named("sleep 60.57"))))
    (sleeps,) = filter(_sleeps, named("sleep 60.57"))
    waited = [pid for pid in waiting(harness.pid) if pid != sleeps.parent]
    harness.kill()
    harness.wait()
    harness.stdout.close()
    eventually(lambda: not any(map(alive, waited)))
    send_signal(sleeps, signal.SIGKILL)
    with nacre.Tool("pi", cwd=tmp_path, session="work", options=NO_SETUP) as tool:
        assert text(tool, "f") == "f 5"


def test_a_session_survives_the_kill_of_its_warden(tmp_path: Path, home: Path) -> None:
    with nacre.Tool(cwd=tmp_path, session="work") as tool:
        text(tool, "x=5; cd /usr")
        (warden,) = wardens.find(home.parent)
        eventually(lambda: len(waiting(warden.pid)) == 2)  # pool is full: no shell is being spawned
        waited = waiting(warden.pid)
        wardens.kill(home.parent)
        eventually(lambda: not any(map(alive, waited)))
        assert text(tool, "echo $x; pwd") == "5\n/usr"


def test_no_shell_that_waits_outlives_its_tool(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        text(tool, "x=1")
        eventually(lambda: len(waiting()) == 2)
        assert text(tool, "echo $x") == "1"
    assert waiting() == []


def test_a_tool_without_close_leaves_no_prewarmed_shell(tmp_path: Path) -> None:
    code = (
        'import nacre, os, time; tool = nacre.Tool("pi", options={"snapshot": False})\n'
        'tool.call({"command": "x=1"}); time.sleep(0.3); print(os.getpid(), flush=True)\n'
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    eventually(lambda: waiting(int(ended.stdout)) == [])
    state = str(Path(os.environ["NACRE_HOME"]))
    eventually(
        lambda: not any(state in processes.command_line(pid) for pid in processes.list_pids())
    )


def test_a_fork_of_the_host_keeps_no_shell_alive(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        text(tool, "x=1")
        eventually(lambda: len(waiting()) == 2)
        held, go = os.pipe()
        child = os.fork()
        if not child:
            os.close(go)
            os.read(held, 1)
            os._exit(0)
        os.close(held)
        waited = waiting()
        tool.close()
        eventually(lambda: not any(map(alive, waited)))
        os.close(go)
        os.waitpid(child, 0)


def test_a_shell_that_waits_is_thrown_away_when_limits_have_changed(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        text(tool, "x=1")
        eventually(lambda: len(waiting()) == 2)
        waited = waiting()
        soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (4096, hard))
        try:
            assert text(tool, "echo $$ $(ulimit -S -c)").split()[0] not in map(str, waited)
            assert text(tool, "ulimit -S -c") == "4"
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def test_a_killed_shell_that_waits_is_no_loss(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        text(tool, "x=1")
        for _ in range(3):
            eventually(lambda: len(waiting()) == 2)
            killed = waiting()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)  # a child of this process, not yet reaped
            eventually(lambda: all(map(has_exited, killed)))  # noqa: B023 - at once
            assert text(tool, "echo $x; y=2") == "1"


def test_one_tool_may_have_another_environment_than_another(tmp_path: Path) -> None:
    for value in ("one", "two"):
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WHO": value}
        with nacre.Tool("pi", cwd=tmp_path, env=env, session="same", options=NO_SETUP) as tool:
            assert text(tool, "echo $WHO ${seen-new}; seen=$WHO") == f"{value} new"
            assert text(tool, "echo $WHO $seen") == f"{value} {value}"


def test_a_prefix_stands_before_the_command_and_makes_another_session(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, session="s", options=NO_SETUP) as tool:
        text(tool, "x=1")
    options = {**NO_SETUP, "prefix": "builtin"}
    with nacre.Tool("pi", cwd=tmp_path, session="s", options=options) as tool:
        assert text(tool, "echo ${x-none}") == "none"


def test_jobs_do_not_change_the_session(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options={**NO_SETUP, "async": True}) as tool:
        text(tool, "x=1")
        reply = tool.call({"command": "x=2; echo $x > made; sleep 0.1", "async": True})
        assert not reply.is_error
        eventually((tmp_path / "made").exists)
        assert text(tool, "echo $x") == "1"
        tool.call({"poll": [reply.details["async"]["jobId"]]}, tool="job")


def test_a_job_does_not_wait_for_the_session(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / ".bashrc").write_text("sleep 0.5\n")
    env = {**os.environ, "HOME": str(tmp_path / "user")}
    with nacre.Tool("pi", cwd=tmp_path, env=env, options={"async": True}) as tool:
        reply = tool.call({"command": "sleep 0.2; touch made", "async": True})
        assert not reply.is_error
        assert (
            text(tool, "until [ -e made ]; do sleep 0.05; done; echo there", timeout=9) == "there"
        )


def test_a_detached_command_saves_its_state_when_it_ends(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, session="s") as tool:
        text(tool, "x=1")
        reply = tool.call({"command": "mkdir d; cd d; x=2; sleep 0.6; x=3", "wait": 0.1})
        assert "[other calls can use the session now; the state of this command is" in reply.text
        assert text(tool, "ls -d") == "."  # a command that cannot change the state takes nothing
        ended = tool.call({"action": "wait", "run": reply.details["run"]}, tool="job")
        assert "session" not in ended.text
        assert text(tool, "echo $x; pwd") == f"3\n{tmp_path}/d"


@pytest.mark.parametrize("detaches", [False, True])
def test_the_state_of_a_later_call_wins_over_that_of_a_detached_command(
    tmp_path: Path, detaches: bool
) -> None:
    with nacre.Tool(cwd=tmp_path, session="s") as tool:
        text(tool, "x=1")
        first = tool.call({"command": f"x=2; {WAIT_FOR_GO}", "wait": 0})
        rest = f"touch begun; {WAIT_FOR_GO}" if detaches else "touch begun"
        second = tool.call({"command": f"y=$x; {rest}", **({"wait": 0} if detaches else {})})
        eventually((tmp_path / "begun").exists)
        (tmp_path / "go").touch()
        if not detaches:
            taken = "[the session keeps the state of this call; the state of r2 is not saved]"
            assert second.text == taken
        reply = tool.call({"action": "wait", "run": first.details["run"]}, tool="job")
        assert (
            "[the state of this command is not saved: before it ended, the session was used"
            in reply.text
        )
        ended = tool.call({"action": "wait", "run": second.details["run"]}, tool="job")
        assert ("state of r2 is not saved" in ended.text) == detaches
        assert text(tool, "echo $x $y") == "1 1"


def test_the_state_of_a_detached_command_waits_for_a_command_that_holds_the_session(
    tmp_path: Path,
) -> None:
    """A command that cannot change the state holds the session for longer than the detached command
    runs, and the next command is already queued."""
    with nacre.Tool(cwd=tmp_path, session="s") as tool, ThreadPoolExecutor(2) as pool:
        text(tool, "x=1")
        tool.call({"command": "sleep 0.8; x=2", "wait": 0})
        time.sleep(0.6)
        holder = pool.submit(tool.call, {"command": "sleep 1.5"})
        time.sleep(0.3)
        assert text(tool, "echo $x; y=1") == "2"
        assert holder.result().text == "(no output)"


def test_the_state_of_a_detached_command_survives_many_other_sessions(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path) as tool:
        run = tool.call({"command": "sleep 1.5; z=1", "session": "a", "wait": 0}).details["run"]
        for number in range(20):
            tool.call({"command": "k=1", "session": f"b{number}"})
        assert "session" not in tool.call({"action": "wait", "run": run}, tool="job").text
        assert tool.call({"command": "echo $z", "session": "a"}).text == "1\n"


def test_a_detached_interactive_command_saves_its_state(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, session="s") as tool:
        reply = tool.call({"command": "read -r name", "interactive": True})
        assert reply.details["state"] == "waiting_input"
        run = reply.details["run"]
        tool.call({"action": "write", "run": run, "text": "Ada\n"}, tool="job")
        tool.call({"action": "wait", "run": run}, tool="job")
        assert text(tool, "echo $name") == "Ada"


def test_calls_of_a_session_run_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, session="s") as tool, ThreadPoolExecutor(1) as pool:
        text(tool, "x=")
        first = pool.submit(tool.call, {"command": f"{WAIT_FOR_GO}; x+=a", "wait": 20})
        eventually(lambda: [run.state for run in tool.runs()][:1] == ["running"])
        held = tool.runs()[0].id
        for name in ("b", "c", "d"):
            reply = tool.call({"command": f"x+={name}; echo $x", "wait": 0 if name == "b" else 0.1})
            assert reply.text == f"[{reply.details['run']} is queued: {held} has the session]"
            assert reply.details["queued"] == {"behind": held}
        (tmp_path / "go").touch()
        first.result()
        last = tool.call({"action": "wait", "run": reply.details["run"]}, tool="job")
        assert last.text == "abcd\n"


def test_what_saves_is_not_ended_though_it_begins_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The saver shares a processor with eight busy processes. The test sets the usual time
    for the start of the saver to zero."""
    monkeypatch.setattr(lease, "_SAVE_START", 0.0)
    busy = "taskset -cp 0 $$ >/dev/null; for i in {1..8}; do (while :; do :; done) & done"
    with nacre.Tool(cwd=tmp_path, session="s", place="here") as tool:
        for number in range(3):
            reply = tool.call({"command": f"{busy}; x={number}", "leave": "end"})
            assert "session is as it was before" not in reply.text
            assert text(tool, "echo $x") == str(number)


def test_leave_end_ends_what_is_left_and_not_what_saves(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, session="s") as tool:
        for number in range(5):
            reply = tool.call({"command": f"x={number}; sleep 62.59 &", "leave": "end"})
            assert "session is as it was before" not in reply.text
            assert text(tool, "echo $x") == str(number)


def test_a_timeout_in_a_session_says_what_became_of_it(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        reply = tool.call({"command": "x=7; sleep 60", "timeout": 1})
        assert "[the session is as this command has left it]" in reply.text
        assert text(tool, "echo $x") == "7"


def test_forks_resets_and_removals(tmp_path: Path) -> None:
    options = {**NO_SETUP, "persist_cwd": True}
    with nacre.Tool("pi", cwd=tmp_path, session="main", options=options) as tool:
        text(tool, "x=1; cd /usr; f() { :; }")
        main = tool.session("main")
        assert (main.cwd, main.functions, "x" in main.variables) == ("/usr", ("f",), True)
        trial = main.fork("trial")
        with pytest.raises(nacre.SessionProblem, match="a session trial exists already"):
            main.fork("trial")
        with pytest.raises(ValueError, match="a session's name has 1 to 100 printable characters"):
            main.fork("\n")
        with nacre.Tool("pi", cwd=tmp_path, session="trial", options=options) as other:
            assert text(other, "echo $x; pwd; x=2") == "1\n/usr"
        assert text(tool, "echo $x") == "1"
        tool.restart()
        assert text(tool, "echo ${x-none}; pwd") == f"none\n{tmp_path}"
        assert {each.name for each in tool.sessions()} == {"main", "trial"}
        trial.remove()
        assert [each.name for each in tool.sessions()] == ["main"]
        with pytest.raises(LookupError, match="there is no session trial in this workspace"):
            tool.session("trial")


def test_one_that_runs_a_command_cannot_be_reset(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, session="busy", place="here") as tool:
        text(tool, "x=1")
        thread = threading.Thread(target=text, args=(tool, "touch begun; read < fifo"))
        os.mkfifo(tmp_path / "fifo")
        thread.start()
        eventually((tmp_path / "begun").exists)
        with pytest.raises(nacre.SessionProblem, match="session busy is running a command"):
            tool.session("busy").reset()
        (tmp_path / "fifo").write_text("\n")
        thread.join()
        tool.session("busy").reset()
        assert text(tool, "echo ${x-none}") == "none"


def test_a_session_without_a_name_ends_with_its_tool(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        text(tool, "x=1")
        assert tool.sessions() == []
        assert [*(home / "sessions").glob("*/*/ledger")]
    assert not [*(home / "sessions").glob("*/*/ledger")]


def test_files_are_the_users_own(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, session="s") as tool:
        text(tool, "umask 0; x=1")
        text(tool, "echo $x")
        modes = []
        for each in (*(home / "sessions").rglob("*"), *(home / "snapshots").rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # a draft that has just been deleted
                modes.append((each.is_dir(), each.stat().st_mode & 0o777))
        assert len(modes) > 3
        assert set(modes) == {(True, 0o700), (False, 0o600)}


def test_idle_ones_are_forgotten(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, session="old", options=NO_SETUP) as tool:
        text(tool, "x=1")
        text(tool, "echo $x")
    with nacre.Tool("pi", cwd=tmp_path, session="new", options=NO_SETUP) as tool:
        text(tool, "x=1")
        text(tool, "echo $x")
        old, new = sorted(
            (home / "sessions").glob("*/*/ledger"), key=lambda p: b"new" in p.read_bytes()
        )
        month = time.time() - 30 * 86400
        os.utime(old, (month, month))
        draft = home / "sessions" / "drafts" / "left"
        draft.write_text("")
        os.utime(draft, (month, month))
        files.remove_old_sessions(time.time() - 14 * 86400, 5.0)
        assert (old.exists(), new.exists(), draft.exists()) == (False, True, False)


def test_a_command_that_keeps_the_state_counts_as_use(tmp_path: Path, home: Path) -> None:
    month = time.time() - 30 * 86400
    with nacre.Tool(cwd=tmp_path) as tool:
        for _ in range(2):
            tool.call({"command": "echo a", "session": "daily"})
        (ledger,) = (home / "sessions").glob("*/*/ledger")
        os.utime(ledger, (month, month))
        for _ in range(2):  # listing a session does not count as use
            assert tool.sessions()[0].used.timestamp() == pytest.approx(month)
        tool.call({"command": "echo a", "session": "daily"})
        assert tool.sessions()[0].used.timestamp() > time.time() - 100


def test_contracts_without_sessions_say_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="harness has no sessions: leave session out"):
        nacre.Tool("harness", session="s")
    made = run_nacre("call", "--contract", "phoenix", "--session", "s", "{}", cwd=tmp_path)
    assert (made.returncode, made.stdout) == (2, "")
    assert "phoenix has no sessions" in made.stderr


def nacre_says(cwd: Path, *words: str) -> tuple[int, str, str]:
    made = run_nacre(*words, cwd=cwd)
    return made.returncode, made.stdout, made.stderr


def test_the_command_line(tmp_path: Path) -> None:
    assert nacre_says(tmp_path, "sessions") == (
        0,
        "no sessions in this workspace; nacre run --session NAME makes one\n",
        "",
    )
    nacre_says(tmp_path, "run", "--session", "a b", "--", "x=1; cd /usr; f() { :; }")
    assert nacre_says(tmp_path, "sessions", "fork", "a b", "c") == (0, "", "")
    code, out, _ = nacre_says(tmp_path, "sessions", "--json")
    listed = json.loads(out)
    assert code == 0
    assert {(each["name"], each["contract"], each["cwd"]) for each in listed} == {
        ("a b", "nacre", "/usr"),
        ("c", "nacre", "/usr"),
    }
    assert nacre_says(tmp_path, "sessions", "reset", "c") == (0, "", "")
    assert nacre_says(tmp_path, "run", "--session", "c", "--", "echo ${x-none}")[1] == "none\n"
    assert nacre_says(tmp_path, "sessions", "remove", "c") == (0, "", "")
    assert nacre_says(tmp_path, "sessions", "show", "c") == (
        1,
        "",
        "nacre: there is no session c in this workspace; sessions: a b\n",
    )
    assert "functions  f" in nacre_says(tmp_path, "sessions", "show", "a b")[1]
    for words, problem in (
        (["fork", "a b"], "no new name was given; write: nacre sessions fork NAME NEW"),
        (["reset"], "no name was given; write: nacre sessions reset NAME"),
        (["list", "c"], "to see one of them, write: nacre sessions show c"),
        (["reset", "a", "b"], "reset takes one name; 'b' is one too many"),
    ):
        assert nacre_says(tmp_path, "sessions", *words) == (2, "", f"nacre: {problem}\n")


def test_a_program_that_ends_without_a_word_ends(tmp_path: Path) -> None:
    code = (
        'import nacre; tool = nacre.Tool("pi", options={"snapshot": False}); '
        'tool.call({"command": "x=1"})'
    )
    for _ in range(4):
        ended = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=20, check=True
        )
        assert ended.stderr == b""


def test_a_host_with_a_thousand_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
            for number in range(4):
                assert text(tool, f"echo ${{x-none}}; x={number}") in ("none", str(number - 1))
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_hundred_threads_that_begin_at_once_leave_nothing(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        together = threading.Barrier(40)

        def call() -> None:
            together.wait()
            text(tool, "n=$((n + 1))")

        threads = [threading.Thread(target=call) for _ in range(40)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert text(tool, "echo $n") == "40"


def test_a_call_that_waits_goes_from_where_the_one_before_it_went(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)

    async def main() -> list[str]:
        options = {**NO_SETUP, "persist_cwd": True}
        with nacre.Tool("pi", cwd=tmp_path, options=options) as tool:
            commands = ("sleep 0.1; cd a", "cd b && pwd", "pwd", "cd ../.. && pwd")
            calls = [tool.acall({"command": each}) for each in commands]
            return [reply.text.partition("\n")[0] for reply in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [
        "(no output)",
        f"{tmp_path}/a/b",
        f"{tmp_path}/a/b",
        str(tmp_path),
    ]


def test_many_sessions_hold_few_descriptors(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, place="here") as tool:
        for number in range(60):
            text(tool, f"x={number}", session=f"s{number}")
        assert len(os.listdir("/proc/self/fd")) < 120
        assert text(tool, "echo $x", session="s3") == "3"


def test_large_variables_of_a_call(tmp_path: Path) -> None:
    env = {**os.environ, "BIG": "x" * 100_000}
    with nacre.Tool("pi", cwd=tmp_path, env=env, options=NO_SETUP) as tool:
        text(tool, "echo ${#BIG}; x=1", env={"BIG": "y"})
        assert text(tool, "echo ${#BIG} $x") == "100000 1"


def test_drafts_do_not_pile_up(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        for number in range(20):
            text(tool, f"x={number}")
            text(tool, "echo hi")
        eventually(lambda: len([*(home / "sessions" / "drafts").iterdir()]) <= 6)
    assert [*(home / "sessions" / "drafts").iterdir()] == []


def test_a_background_subshell_is_called_by_what_it_runs(tmp_path: Path) -> None:
    sleep = f"sleep 98769.{os.getpid():07d}"
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        reply = tool.call({"command": f"({sleep}; :) & x=1"})
        for each in named(sleep):
            send_signal(each, signal.SIGKILL)
        assert f"/bin/bash -c ({sleep}; :) & x=1]" in reply.text
        assert "_nacre" not in reply.text


def test_a_function_of_the_environment_that_was_unset_is_gone(tmp_path: Path) -> None:
    options = {**NO_SETUP, "environment": "inherit"}
    env = {"PATH": os.environ["PATH"], "BASH_FUNC_f%%": "() { echo f; }"}
    with nacre.Tool("pi", cwd=tmp_path, env=env, options=options) as tool:
        assert text(tool, "f; unset -f f") == "f"
        assert text(tool, "declare -F") == "(no output)"


def test_a_session_has_the_environment_and_the_directory_of_its_first_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("Q", "one")
    with nacre.Tool(cwd=tmp_path, place="here", session="s") as tool:
        text(tool, "ls")  # `ls` cannot change the state of its shell
    monkeypatch.setenv("Q", "two")
    with nacre.Tool(cwd=tmp_path / "other", place="here", session="s") as tool:
        assert text(tool, "echo $Q; pwd") == f"one\n{tmp_path}"


def test_one_can_be_found_during_its_first_command(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, session="first") as tool:
        run = tool.call({"command": "sleep 71.5", "wait": 0.3}).run
        assert [each.name for each in tool.sessions()] == ["first"]
        assert run is not None
        tool.run(run).signal("KILL")


def test_what_a_call_is_given_is_its_own(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        text(tool, "B=mine; declare -n A=B")
        given = {"A": "given", "PWD": "/usr"}
        assert text(tool, "y=1; echo $A", env=given) == "given"
        assert text(tool, "echo hi", env={"_nacre_late": "echo ours;"}) == "hi"
        assert text(tool, "echo $A $B; pwd") == f"mine mine\n{tmp_path}"


def test_a_shell_that_waits_in_the_warden_has_the_limits_of_its_caller(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path) as tool:
        text(tool, "true")  # starts the warden with the limits of this process
    code = """
        import resource, sys, time, nacre
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))
        resource.setrlimit(resource.RLIMIT_FSIZE, (102400, 102400))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 1024))
        with nacre.Tool(cwd=sys.argv[1], session="s") as tool:
            for _ in range(3):
                print(tool.call({"command": "x=1; ulimit -Sn; ulimit -Hn -f -c"}).text, end="")
                time.sleep(0.4)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    limits = [each.rpartition(" ")[2] for each in told.splitlines()]
    assert limits == ["300", "400", "100", "1"] * 3


def test_nothing_of_an_anonymous_session_is_left(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        text(tool, "export SECRET=hunter22")
    eventually(lambda: not [*(home / "sessions" / "drafts").iterdir()])
    left = [path for path in (home / "sessions").rglob("*") if path.is_file()]
    assert not [path for path in left if b"hunter22" in path.read_bytes()]


def test_an_environment_that_would_have_shells_go_their_own_way(tmp_path: Path) -> None:
    options = {**NO_SETUP, "environment": "inherit"}
    odd = {"SHELLOPTS": "xtrace:errexit", "BASHOPTS": "nullglob", "POSIXLY_CORRECT": "1"}
    env = {"PATH": os.environ["PATH"], "BASH_FUNC_builtin%%": "() { echo mine; }", **odd}
    with nacre.Tool("pi", cwd=tmp_path, env=env, options=options) as tool:
        for _ in range(3):
            assert text(tool, "x=1; echo $-; shopt -q nullglob || echo off") == "hBc\noff"


def test_signals_that_a_caller_ignores_are_no_traps_of_the_session(tmp_path: Path) -> None:
    run = [PROGRAM, "run", "--cwd", str(tmp_path), "--session", "s", "--"]
    quiet = subprocess.run(
        [*run, "x=1; trap '' USR1; trap '' PIPE"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert quiet.returncode == 0
    told = subprocess.run([*run, "trap -p; echo $x"], capture_output=True, text=True, check=True)
    traps = [line for line in told.stdout.splitlines() if not line.endswith("EXIT")]
    assert traps == ["trap -- '' SIGUSR1", "trap -- '' SIGPIPE", "1"]


def test_after_a_reset_it_begins_where_it_should(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, session="s") as tool:
        for _ in range(30):
            text(tool, "x=1; cd /usr")
            text(tool, "echo hi")
            tool.restart()
            assert text(tool, "echo [$x]; pwd") == f"[]\n{tmp_path}"


@pytest.mark.parametrize("contract", ["nacre", "pi"])
def test_a_session_whose_directory_was_removed_runs_in_the_nearest_one(
    tmp_path: Path, contract: str
) -> None:
    pi_options = {"persist_cwd": True, "async": True}
    options = {**NO_SETUP, **(pi_options if contract == "pi" else {})}
    gone = tmp_path / "d" / "e"
    note = f"[the session's directory {gone} cannot be entered; this call starts from {tmp_path}]"
    with nacre.Tool(contract, cwd=tmp_path, session="s", options=options) as tool:
        for command, shown in (("pwd; echo $x", f"{tmp_path}\n1\n"), ("cd /", "")):
            text(tool, f"mkdir -p {gone}; cd {gone}; x=1")
            shutil.rmtree(tmp_path / "d")
            reply = tool.call({"command": command})
            assert not reply.is_error
            assert reply.text.removeprefix("(no output)").lstrip("\n").startswith(shown)
            assert note in reply.text
        assert text(tool, "pwd; echo $x") == "/\n1"
        text(tool, f"mkdir -p {gone}; mkdir -p {tmp_path}/sub; cd {gone}")
        shutil.rmtree(tmp_path / "d")
        assert note not in tool.call({"command": "pwd", "cwd": "/usr"}).text
        reply = tool.call({"command": "pwd", "cwd": "sub"})
        assert reply.text.startswith(f"{tmp_path}/sub\n")
        assert note in reply.text
        detached = {"command": "true", **({"async": True} if contract == "pi" else {"wait": 0})}
        assert note.removesuffix("]") in tool.call(detached).text
        if contract == "pi":
            assert note in tool.call({"command": "cd sub && pwd"}).text


def test_each_call_of_pi_starts_in_the_directory_of_the_tool(tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        for _ in range(2):
            assert text(tool, "cd d && pwd") == f"{tmp_path}/d"
        text(tool, "cd d; x=5; f() { echo f; }; shopt -s extglob; pushd e")
        shown = f"{tmp_path}\n{tmp_path}\n5\nf\nextglob        \ton"
        assert text(tool, "pwd; dirs -l; echo $x; f; shopt extglob") == shown
        assert text(tool, "pwd; cd /", cwd="d/e") == f"{tmp_path}/d/e"
        assert text(tool, "pwd", cwd="d") == f"{tmp_path}/d"
        assert "Each command starts in the session workspace" in tool.specs()[0]["description"]
    with nacre.Tool("pi", cwd=tmp_path, options={**NO_SETUP, "persist_cwd": True}) as tool:
        text(tool, "cd d")
        assert text(tool, "cd e && pwd") == f"{tmp_path}/d/e"
        assert text(tool, "pwd") == f"{tmp_path}/d/e"
        assert ", and the directory" in tool.specs()[0]["description"]


@pytest.mark.parametrize("contract", ["nacre", "pi"])
def test_a_call_that_waited_for_the_removal_of_its_directory_runs_in_the_nearest_one(
    tmp_path: Path, contract: str
) -> None:
    options = {**NO_SETUP, **({"persist_cwd": True} if contract == "pi" else {})}
    with nacre.Tool(contract, cwd=tmp_path, session="s", options=options) as tool:
        text(tool, "mkdir d; cd d; x=1")
        removal = {"command": f"touch {tmp_path}/begun; sleep 0.5; y=1; rmdir {tmp_path}/d"}
        thread = threading.Thread(target=tool.call, args=(removal,))
        thread.start()
        eventually((tmp_path / "begun").exists)
        reply = tool.call({"command": "pwd; echo $x$y"})
        thread.join()
    assert reply.text.startswith(f"{tmp_path}\n11\n")
    assert f"[the session's directory {tmp_path}/d cannot be entered" in reply.text


@pytest.mark.parametrize("pause", [0.0, 0.5])
def test_a_directory_that_was_removed_and_made_again_is_the_new_one(
    tmp_path: Path, pause: float
) -> None:
    with nacre.Tool(cwd=tmp_path, session="s", options=NO_SETUP) as tool:
        text(tool, "mkdir d; cd d; x=1; cd /; cd ~-")
        assert text(tool, "echo $OLDPWD") == "/"  # a call that stays does not change OLDPWD
        for command in ("touch a; ls", "y=1; touch a; ls", "touch a; ls"):
            time.sleep(pause)  # with a pause, prewarmed shells stand in the directory
            shutil.rmtree(tmp_path / "d")
            (tmp_path / "d").mkdir()
            assert text(tool, command) == "a"


def test_pi_whose_root_was_removed_runs_in_the_nearest_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with nacre.Tool("pi", cwd=root, options=NO_SETUP) as tool:
        text(tool, "x=1")
        root.rmdir()
        reply = tool.call({"command": "pwd; echo $x; mkdir root"})
        assert reply.text.startswith(f"{tmp_path}\n1\n")
        assert f"[the session's directory {root} cannot be entered; this call" in reply.text
        assert text(tool, "pwd; echo $x") == f"{root}\n1"
        root.rmdir()
        assert tool.call({"command": "pwd", "cwd": str(root)}).is_error


def test_a_named_session_of_pi_starts_in_the_directory_of_each_tool(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("a", "b", "a"):
        with nacre.Tool("pi", cwd=tmp_path / name, session="s", options=NO_SETUP) as tool:
            assert text(tool, "pwd; n=$((n + 1)); cd /") == f"{tmp_path}/{name}"
    with nacre.Tool("pi", cwd=tmp_path, session="s", options=NO_SETUP) as tool:
        assert text(tool, "echo $n") == "3"


def test_the_tool_description_says_what_kind_of_shell_the_model_has(tmp_path: Path) -> None:
    def told(contract: str, session: str | None) -> str:
        with nacre.Tool(contract, cwd=tmp_path, session=session) as tool:
            return str(tool.specs()[0]["description"])

    assert "Each call is a new shell" in told("nacre", None)
    assert "Calls share one shell" in told("nacre", "s")
    assert "Commands share one shell" in told("pi", None)


def test_one_name_under_two_contracts(tmp_path: Path) -> None:
    for contract in ("nacre", "pi"):
        with nacre.Tool(contract, cwd=tmp_path, session="s", place="here") as tool:
            text(tool, "x=1")
    say = ["sessions", "--cwd", str(tmp_path)]
    both = run_nacre(*say, "remove", "s")
    assert (both.returncode, "nacre and pi each have a session s" in both.stderr) == (1, True)
    assert run_nacre(*say, "--contract", "pi", "remove", "s").returncode == 0
    left = run_nacre(*say, "--json")
    assert [each["contract"] for each in json.loads(left.stdout)] == ["nacre"]


def test_what_is_handed_back_leaves_no_draft(tmp_path: Path, home: Path) -> None:
    with nacre.Tool(cwd=tmp_path, session="s") as tool:
        run = tool.call({"command": "export SECRET=hunter22; sleep 1", "wait": 0.2}).run
        assert run is not None
        tool.run(run).wait(10)
        drafts = home / "sessions" / "drafts"
        eventually(lambda: not [path for path in drafts.iterdir() if b"hunter22" in read(path)])


def read(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def test_prewarmed_shells_wait_under_an_unusual_ifs_of_the_session(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, options=NO_SETUP) as tool:
        text(tool, "IFS=$'\\xff\\x01'")
        eventually(lambda: len(waiting()) == 2)
        time.sleep(0.3)
        assert len(waiting()) == 2
