"""Tests of the process tree: every process of a run ends, and no other process gets a signal."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import nacre
from nacre import TimedOut
from nacre.process import process_tree, rlimits, run_tag
from nacre.process.tag_index import TagIndex
from nacre.procfs import processes
from nacre.procfs.processes import Process
from tests.support.helpers import PYTHON, alive, eventually, named

pytestmark = pytest.mark.slow

# Seconds that the processes of these tests sleep; no other process sleeps exactly this long.
SECONDS = f"98765.{os.getpid():07d}"

TREES = {
    "plain": "sleep N",
    "background": "sleep N & sleep N & wait",
    "disowned": "sleep N & disown; nohup sleep N >/dev/null 2>&1 & wait",
    "own session": "setsid sleep N & setsid -f sleep N; wait",
    "double fork": "(setsid sleep N &) ; ( (sleep N &) ) ; sleep N",
    "no environment": "env -i setsid /bin/sh -c '/bin/sleep N & exit' ; sleep N",
    "ignores TERM": "trap '' TERM; (trap '' TERM; sleep N) & setsid sleep N & wait; sleep N",
    "stopped": "sleep N & kill -STOP $!; setsid sleep N & kill -STOP $!; wait",
    "closed its pipe": "setsid sleep N >/dev/null 2>&1 </dev/null & sleep N",
    "a daemon": f"""{PYTHON} -c "
import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 256)
os.execve('/bin/sleep', ['sleep', 'N'], {{}})
"; sleep N""",
    "job control": "set -m; sleep N & (sleep N | cat) & sleep N",
    "a pipeline": "sleep N | sleep N | cat",
    "a tree of 200": """
        for i in $(seq 100); do sleep N & done
        for i in $(seq 40); do setsid sleep N & done
        for i in $(seq 60); do (setsid sleep N &) ; done
        wait; sleep N""",
}


def sleepers() -> list[Process]:
    return named(SECONDS)


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("grace", [0.3])
def test_nothing_survives_a_timeout(kind: str, grace: float) -> None:
    bystander = subprocess.Popen(["sleep", SECONDS + "1"], start_new_session=True)
    try:
        script = TREES[kind].replace("N", SECONDS)
        outcome = nacre.run(script, timeout=0.6 if "200" in kind else 0.4, grace=grace)
        assert isinstance(outcome.ending, TimedOut)
        assert outcome.left_running == ()
        assert [each.pid for each in sleepers()] == [bystander.pid]
    finally:
        bystander.kill()
        bystander.wait()


def test_a_process_whose_first_thread_has_ended_is_still_alive() -> None:
    code = f"""
import ctypes, threading, time
threading.Thread(target=time.sleep, args=({SECONDS},)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    script = f"setsid {PYTHON} -c '{code}' & sleep {SECONDS}"
    outcome = nacre.run(script, timeout=0.8, grace=0.3)
    assert isinstance(outcome.ending, TimedOut)
    assert sleepers() == []


def test_children_that_fork_while_they_are_killed() -> None:
    # Each process starts its successor and exits. All of them ignore TERM, so only KILL ends them.
    script = f"""
        trap '' TERM
        hop() {{ sleep 0.01; hop & exit; }}
        hop &
        (setsid bash -c 'trap "" TERM; while :; do sleep 0.02 & sleep {SECONDS} & wait -n; done' &)
        sleep {SECONDS}"""
    outcome = nacre.run(script, timeout=0.5, grace=0.2)
    assert isinstance(outcome.ending, TimedOut)
    assert outcome.left_running == ()
    assert sleepers() == []


@pytest.mark.parametrize("redirect", ["", ">/dev/null", "2>/dev/null"])
def test_a_process_that_escapes_before_the_tag_is_set_is_still_found(
    redirect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without prlimit(1), nacre tags the shell after the spawn. On a busy machine, the shell may
    start processes before nacre gets to run again."""
    monkeypatch.setattr(rlimits, "PRLIMIT", b"/nonexistent")
    put = run_tag.apply_tag

    def late(pid: int, mark: run_tag.Tag, hard: int | None = None) -> bool:
        monkeypatch.setattr(run_tag, "apply_tag", put)
        eventually(lambda: len(sleepers()) >= 2)
        return put(pid, mark, hard)

    monkeypatch.setattr(run_tag, "apply_tag", late)
    script = f"(setsid sleep {SECONDS} {redirect} &); sleep {SECONDS}"
    outcome = nacre.run(script, timeout=0.3, grace=0.3, streams=nacre.Streams.SEPARATE)
    assert isinstance(outcome.ending, TimedOut)
    assert run_tag.apply_tag is put  # the tag was set late, as intended
    assert sleepers() == []


def test_our_own_group_is_never_signalled() -> None:
    # If a signal reached the process group of the host, the host would die.
    code = f"import nacre; print(nacre.run('sleep {SECONDS}', timeout=0.2, grace=0.2).ending)"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, process_group=0
    )
    assert said.returncode == 0
    assert said.stdout.startswith("TimedOut(")


def test_a_signal_goes_to_an_identity_and_not_to_a_number() -> None:
    sleeper = subprocess.Popen(["sleep", SECONDS])
    try:
        process = processes.read_process(sleeper.pid)
        assert process is not None
        somebody_before = process._replace(started=process.started - 1)
        assert process_tree.send_signal(somebody_before, signal.SIGKILL)
        assert alive(sleeper.pid)
        assert process_tree.send_signal(process, signal.SIGKILL)
        eventually(lambda: not alive(sleeper.pid))
        assert sleeper.wait() == -signal.SIGKILL
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_worker_that_the_host_forked_meanwhile_is_left_alone() -> None:
    """A forked worker of the host holds nacre's pipes and is younger than the command. The worker
    still does not belong to the process tree of the command."""
    code = f"""
        import os, threading, time, nacre
        thread = threading.Thread(target=lambda: print(
            nacre.run("sleep {SECONDS}", timeout=0.6, grace=0.2).left_running))
        thread.start()
        time.sleep(0.2)
        worker = os.fork()
        if worker == 0:
            time.sleep(30)
        thread.join()
        print(os.waitpid(worker, os.WNOHANG) == (0, 0))
        os.kill(worker, 9)
        os.waitpid(worker, 0)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert said.stdout == "()\nTrue\n", said.stderr


def test_a_worker_that_the_host_forks_during_a_spawn_is_not_waited_for() -> None:
    """A forked worker of the host holds a copy of the pipe that reports a failed exec."""
    code = """
        import os, signal, time, nacre
        from nacre.process.spawn_request import SpawnAttempt
        workers = []
        def fork_meanwhile(attempt, real=SpawnAttempt.on_started):
            real(attempt)
            workers.append(os.fork())  # as another thread of the host might
            if workers[-1] == 0:
                time.sleep(30)
                os._exit(0)
        SpawnAttempt.on_started = fork_meanwhile
        try:
            outcome = nacre.run("exit 3")
            print(outcome.exit_code, outcome.left_running, outcome.seconds < 15)
            print(len(workers), os.waitpid(workers[0], os.WNOHANG) == (0, 0))
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert said.stdout == "3 () True\n1 True\n", said.stderr


def test_a_process_that_sheds_its_tag_is_found_by_the_pipe_it_holds() -> None:
    shed = f"""{PYTHON} -c "
import os, resource
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
resource.setrlimit(10, resource.getrlimit(10)[1:] * 2)
os.execv('/bin/sleep', ['sleep', '{SECONDS}'])
" ; true"""
    # The shell has ended before the timeout, so nacre can find the process only by its pipe.
    script = f"{shed}; sleep 0.2; kill -9 $$"
    outcome = nacre.run(script + f"; sleep {SECONDS}", timeout=5)
    (left,) = sleepers()
    try:
        assert run_tag.parse_tag(processes.soft_locks(left.pid)) is None
        found = process_tree.ProcessTree(
            left.pid,
            None,
            pipes=_pipes(left.pid),
            owns_orphans=lambda: False,
            free_descriptors=lambda: None,
        )
        assert [each.pid for each in found._writers(processes.read_all_processes())] == [left.pid]
    finally:
        process_tree.send_signal(left, signal.SIGKILL)
        eventually(lambda: not sleepers())
    assert outcome.exit_code == 137


def _pipes(pid: int) -> frozenset[int]:
    return frozenset(os.stat(f"/proc/{pid}/fd/{fd}").st_ino for fd in (1, 2))


def test_tags_nest_so_that_nacre_inside_nacre_belongs_to_the_outer_run() -> None:
    script = f"(setsid sleep {SECONDS} &); sleep {SECONDS}"
    inner = f"{PYTHON} -m nacre run --timeout 0 -- '{script}'"
    outcome = nacre.run(f"trap '' TERM; {inner}; sleep {SECONDS}", timeout=2.5, grace=0.5)
    assert isinstance(outcome.ending, TimedOut)
    assert sleepers() == []


def test_tags_tell_runs_apart() -> None:
    ours, theirs = run_tag.new_tag(), run_tag.new_tag()
    assert ours is not None
    assert theirs is not None
    assert ours.includes(ours.value)
    assert not ours.includes(theirs.value)
    assert not ours.includes(-1)
    assert not ours.includes(None)
    assert not ours.includes(10_000)
    inside = run_tag.Tag(own=5, outer=ours.own % 2**24)
    assert ours.includes(inside.value)


def test_a_hard_limit_that_leaves_no_room_for_tags_still_kills_the_session() -> None:
    code = f"""
        import resource, nacre
        resource.setrlimit(10, (1000, 1000))
        print(nacre.run("sleep {SECONDS} & nohup sleep {SECONDS} & wait", timeout=0.3, grace=0.2)
              .left_running)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert said.stdout == "()\n", said.stderr
    assert sleepers() == []


def test_nacre_does_not_change_its_host_process() -> None:
    code = """
        import ctypes, resource, signal, nacre
        def state():
            reaper = ctypes.c_int()
            ctypes.CDLL(None).prctl(37, ctypes.byref(reaper), 0, 0, 0)
            return (reaper.value, signal.getsignal(signal.SIGCHLD), resource.getrlimit(10),
                    signal.pthread_sigmask(signal.SIG_BLOCK, []))
        before = state()
        with nacre.Tool("harness") as tool:
            tool.call({"command": "sleep 0.1 & true"})
        nacre.run("sleep 5", timeout=0.1)
        print(state() == before)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert said.stdout == "True\n", said.stderr


def test_nacre_run_reports_a_leftover_process_that_shed_its_tag() -> None:
    script = f'bash -c "ulimit -S -x unlimited; setsid sleep {SECONDS} >/dev/null 2>&1 &"'
    said = subprocess.run(
        [sys.executable, "-m", "nacre", "run", "--", script], capture_output=True, timeout=60
    )
    (left,) = sleepers()
    process_tree.send_signal(left, signal.SIGKILL)
    assert said.stderr.startswith(b"[left running: %d " % left.pid)
    eventually(lambda: not sleepers())


def test_nacre_run_ends_a_daemon_that_shed_its_tag_and_its_pipe(tmp_path: Path) -> None:
    """A daemon without run tag, environment, pipe and parent is still a child of the subreaper."""
    daemon = tmp_path / "daemon.py"
    daemon.write_text(
        textwrap.dedent(f"""
            import os, resource, time
            if os.fork(): os._exit(0)
            os.setsid()
            if os.fork(): os._exit(0)
            resource.setrlimit(10, resource.getrlimit(10)[1:] * 2)
            os.closerange(0, 256)
            os.execve("/bin/sleep", ["sleep", "{SECONDS}"], {{}})
        """)
    )
    script = f"{PYTHON} {daemon}; sleep {SECONDS}"
    began = time.monotonic()
    said = subprocess.run(
        [sys.executable, "-m", "nacre", "run", "--timeout", "0.8", "--", script],
        capture_output=True,
        timeout=60,
    )
    assert said.returncode == 124
    assert time.monotonic() - began < 10
    assert sleepers() == []


def test_a_wraparound_of_pids_hides_no_process() -> None:
    """The tag index checks only pids above the last known pid. After a long pause the pids may
    have wrapped around, so the index scans all of /proc."""
    mark = run_tag.new_tag()
    assert mark is not None
    sleeper = subprocess.Popen(["sleep", SECONDS], start_new_session=True)
    newest = processes.LastPid()
    try:
        assert run_tag.apply_tag(sleeper.pid, mark)
        for late, expected in ((0.0, []), (2.0, [sleeper.pid])):
            census = TagIndex()
            newer = newest.read() or 0  # newer than the sleeper, as after a wraparound of pids
            census.start(newer, alone=True)
            census._scanned_at -= late
            assert [each.pid for each in census.find_leftovers(1, mark)] == expected
            census.close()
    finally:
        newest.close()
        sleeper.kill()
        sleeper.wait()
