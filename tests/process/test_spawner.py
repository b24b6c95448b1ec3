"""Tests of the spawner: both ways to start a shell, and interference from the host."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

import nacre
from nacre.engine.engine import Engine
from nacre.model.outcome import Exited, NotStarted
from nacre.model.plan import Command, LeftoverPolicy, Plan
from nacre.model.refusals import BadDirectory, CannotSpawn, NoShell
from nacre.process import spawn_fork_exec, spawn_popen
from nacre.process.spawn_request import SpawnAttempt, SpawnRequest
from nacre.process.spawner import Spawner
from nacre.procfs import processes
from tests.engine.test_hosts import host
from tests.support.helpers import eventually, named


@pytest.fixture(params=["directly", "by Popen"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by Popen":
        monkeypatch.setattr(spawn_fork_exec, "_fork_exec", None)
    elif spawn_fork_exec._fork_exec is None:
        pytest.skip(f"not on Python {sys.version.split()[0]}: there it is always Popen")


@pytest.fixture
def popen_is_not_needed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "directly" in request.node.name:
        monkeypatch.setattr(spawn_popen, "spawn_popen", None)


@pytest.mark.usefixtures("way", "popen_is_not_needed")
def test_a_shell_gets_what_was_planned(tmp_path: Path) -> None:
    outcome = nacre.run(
        'pwd; cat; echo "$VARIABLE" >&2; ps -o sid= -p $$ | tr -d " "; echo $$; ls /proc/self/fd',
        cwd=tmp_path,
        env={"VARIABLE": "a b", "PATH": os.environ["PATH"]},
        stdin=b"given\n",
        streams=nacre.Streams.SEPARATE,
    )
    where, given, session, pid, *descriptors = outcome.output.head.decode().splitlines()
    assert outcome.ending == Exited(0)
    assert (where, given, session) == (str(tmp_path), "given", pid)
    assert descriptors == ["0", "1", "2", "3"]  # descriptor 3 is the directory that `ls` reads
    assert outcome.errors is not None
    assert outcome.errors.head == b"a b\n"


@pytest.mark.usefixtures("way", "popen_is_not_needed")
def test_signals_that_python_ignores_are_not_ignored_by_commands() -> None:
    ignored = nacre.run("grep SigIgn /proc/self/status").output.head
    python_does = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)
    assert int(ignored.split()[1], 16) & python_does == 0


@pytest.mark.usefixtures("way")
def test_a_command_that_cannot_be_started_gets_a_refusal(tmp_path: Path) -> None:
    missing = os.fsencode(tmp_path / "missing")
    plan = Plan(command=Command(original=b"true", script=b"true", cwd=missing))
    with_no_shell = nacre.run("true", shell=missing)
    ending = Engine().start(plan).wait().ending
    assert isinstance(ending, NotStarted)
    assert isinstance(ending.why, BadDirectory)
    assert isinstance(with_no_shell.ending, NotStarted)
    assert isinstance(with_no_shell.ending.why, NoShell)


@pytest.mark.usefixtures("way")
def test_a_variable_that_cannot_be_is_refused_before_anything_runs(tmp_path: Path) -> None:
    command = Command(original=b"", script=b"touch x", cwd=os.fsencode(tmp_path), env={b"A=B": b""})
    ending = Engine().start(Plan(command=command)).wait().ending
    assert isinstance(ending, NotStarted)
    assert isinstance(ending.why, CannotSpawn)
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("way")
def test_a_shell_without_a_path_is_looked_for_in_path_and_not_here(tmp_path: Path) -> None:
    impostor = tmp_path / "bash"
    impostor.write_text("#!/bin/sh\necho impostor\n")
    impostor.chmod(0o755)
    outcome = nacre.run("echo right", shell="bash", cwd=tmp_path)
    assert outcome.output.head == b"right\n"


def test_an_interrupt_at_the_birth_leaves_no_child() -> None:
    """An interrupt during the fork comes when only a C function knows the pid of the child."""
    said = host(
        """
        import os, random, signal, time, nacre
        from nacre.procfs import processes
        dice = random.Random(11)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        interrupts = 0
        for _ in range(200):
            try:
                # Again, should the first one fall into a destructor: Python swallows it there.
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.00005, 0.0008), 0.3)
                nacre.run("sleep 987")
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupts += 1
        found = processes.read_all_processes().values()
        mine = [each for each in found if each.parent == os.getpid()]
        print(interrupts, len(mine))
    """,
        noise=True,  # Python prints a warning if it swallows an interrupt in a destructor
    )
    assert said.splitlines()[-1] == "200 0"


def test_an_interrupt_at_the_birth_ends_what_the_child_has_started() -> None:
    """On a busy machine, a shell may start processes before the spawn call returns."""
    seconds = f"98767.{os.getpid():07d}"
    script = f"(setsid sleep {seconds} &); sleep {seconds}".encode()
    command = Command(original=script, script=script, cwd=b"/")
    spawner = Spawner(own_process=False)

    def start(request: SpawnRequest, attempt: SpawnAttempt) -> None:
        spawn_fork_exec.spawn(request, attempt)
        eventually(lambda: sum(_is_sleep(each.pid) for each in named(seconds)) == 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spawner.spawn(Plan(command=command), SpawnAttempt(), spawner.new_tag(), start=start)
    assert named(seconds) == []
    spawner.close()


def test_a_leftover_process_is_ended_although_the_spawn_returns_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script may source a file. The script does not show which processes that file starts."""
    seconds = f"98768.{os.getpid():07d}"
    (tmp_path / "file").write_text(f"setsid sleep {seconds} </dev/null >/dev/null 2>&1 &\n")
    command = Command(original=b"", script=b". ./file", cwd=os.fsencode(tmp_path))
    see_to_it = SpawnAttempt.on_started

    def late(attempt: SpawnAttempt) -> None:
        eventually(lambda: any(_is_sleep(each.pid) for each in named(seconds)))
        see_to_it(attempt)

    monkeypatch.setattr(SpawnAttempt, "on_started", late)
    plan = Plan(command=command, leftovers=LeftoverPolicy.END)
    assert Engine().start(plan).wait().ending == Exited(0)
    assert named(seconds) == []


def _is_sleep(pid: int) -> bool:
    return processes.command_line(pid).startswith("sleep")


def descriptors() -> set[str]:
    return {*os.listdir("/proc/self/fd")}


def test_a_tool_keeps_a_loop_for_the_next_command_and_nothing_once_closed() -> None:
    before = descriptors()
    with nacre.Tool("harness") as tool:
        tool.call({"command": "true"})
        kept = descriptors()
        assert len(kept - before) <= 8  # three of them: the audit log, the journal, the counter
        for _ in range(20):
            tool.call({"command": "true"})
        assert descriptors() == kept
    assert descriptors() == before


def test_a_run_without_a_tool_keeps_nothing() -> None:
    before = descriptors()
    nacre.run("true")
    assert descriptors() == before


def test_a_tool_that_is_forgotten_keeps_nothing() -> None:
    before = descriptors()
    nacre.Tool("harness").call({"command": "true"})
    assert descriptors() == before


def test_of_many_threads_one_loop_is_kept() -> None:
    before = descriptors()
    together = threading.Barrier(8)

    def call() -> None:
        together.wait()
        assert tool.call({"command": "sleep 0.1; echo hi"}).details["stdout"] == "hi\n"

    with nacre.Tool("harness") as tool:
        for _ in range(2):
            threads = [threading.Thread(target=call) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(descriptors() - before) <= 8
    assert descriptors() == before


def test_a_fork_of_the_host_has_a_tool_of_its_own() -> None:
    said = host("""
        import os, nacre
        tool = nacre.Tool("harness")
        tool.call({"command": "true"})
        if (child := os.fork()) == 0:
            os.closerange(3, 64)  # as a daemon does; then others get these numbers
            held = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
            inodes = [os.fstat(fd).st_ino for fd in held]
            print(tool.call({"command": "echo child"}).text, flush=True)
            print([os.fstat(fd).st_ino for fd in held] == inodes, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(tool.call({"command": "echo parent"}).text, flush=True)
    """)
    child, kept, parent = said.splitlines()
    assert '"child\\n"' in child
    assert kept == "True"
    assert '"parent\\n"' in parent


def test_the_audit_log_is_never_written_into_a_file_of_the_host(tmp_path: Path) -> None:
    said = host(f"""
        import os, nacre
        tool = nacre.Tool("harness")
        tool.call({{"command": "true"}})
        log = tool._audit._file._fd
        os.close(log)
        stranger = os.open({str(tmp_path / "stranger")!r}, os.O_RDWR | os.O_CREAT, 0o600)
        assert stranger == log
        tool.call({{"command": "echo two"}})
        print(os.fstat(stranger).st_size, tool.audit_problem)
        tool.close()
        os.fstat(stranger)
    """)
    assert said == "0 None\n"
