"""Tests of the engine through `nacre.run`: the outcome that a caller gets for one command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre import Exited, Keep, Killed, Spill, Streams, TimedOut, When
from nacre.engine.engine import Engine
from nacre.model.outcome import Capture
from nacre.model.plan import Command, Limits, Plan
from nacre.procfs import processes
from tests.support.helpers import alive, end, eventually


def test_output_and_exit_code() -> None:
    outcome = nacre.run("echo hi; exit 3")
    assert outcome.ending == Exited(3)
    assert outcome.output == Capture(head=b"hi\n", size=3, newlines=1)
    assert outcome.errors is None
    assert outcome.left_running == ()


def test_merged_output_is_in_the_order_of_writing() -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done"
    expected = b"".join(b"o%d\ne%d\n" % (i, i) for i in range(1, 10))
    assert nacre.run(script).output.head == expected


def test_separate_streams_are_kept_apart() -> None:
    outcome = nacre.run("echo out; echo err >&2", streams=Streams.SEPARATE)
    assert outcome.output.head == b"out\n"
    assert outcome.errors == Capture(head=b"err\n", size=4, newlines=1)


def test_a_signal_is_said_only_when_the_kernel_says_so() -> None:
    assert nacre.run("kill -9 $$").ending == Killed(signal.SIGKILL)
    assert nacre.run("exit 137").ending == Exited(137)


def test_an_unterminated_last_line_is_visible() -> None:
    output = nacre.run("printf 'one\\ntwo'").output
    assert (output.head, output.newlines, output.lines, output.unterminated) == (
        b"one\ntwo",
        1,
        2,
        True,
    )


def test_stdin_is_empty_unless_given() -> None:
    assert nacre.run("cat; echo end").output.head == b"end\n"
    assert nacre.run("cat; echo end", stdin=b"given ").output.head == b"given end\n"


def test_stdin_of_any_size_is_given_whole() -> None:
    assert nacre.run("wc -c", stdin=b"x" * 5_000_000).output.head == b"5000000\n"


def test_a_command_that_does_not_read_its_stdin_is_not_hurt() -> None:
    assert nacre.run("true", stdin=b"x" * 1_000_000).ending == Exited(0)


def test_no_controlling_terminal() -> None:
    outcome = nacre.run("read x </dev/tty", timeout=10)
    assert outcome.ending == Exited(1)


def test_the_shell_leads_its_own_session_and_group() -> None:
    words = nacre.run("ps -o pid=,pgid=,sid= -p $$").output.head.split()
    assert len(set(words)) == 1


def test_a_command_inherits_no_descriptor_of_the_host() -> None:
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)
    try:
        listed = nacre.run("ls /proc/self/fd", streams=Streams.SEPARATE).output.head.split()
    finally:
        os.close(readable)
        os.close(writable)
    assert listed == [b"0", b"1", b"2", b"3"]  # descriptor 3 is the directory that `ls` reads


@pytest.mark.parametrize("size", [131_071, 131_072, 3_000_000])
def test_a_script_longer_than_an_argument_may_be_runs(size: int) -> None:
    script = "x='" + "y" * (size - 16) + "'; echo ${#x}"
    outcome = nacre.run(script)
    assert outcome.output.head == b"%d\n" % (size - 16)


def test_a_long_script_leaves_no_descriptor_to_its_children() -> None:
    outcome = nacre.run("ls /proc/self/fd\n" + "# padding\n" * 20_000)
    assert outcome.output.head.split() == [b"0", b"1", b"2", b"3"]


def test_a_long_script_has_the_same_zero_and_line_numbers() -> None:
    script = "echo $0 $#\nnosuchcommand\n" + "# padding\n" * 20_000
    assert nacre.run(script).output.head == (
        b"/bin/bash 0\n/bin/bash: line 2: nosuchcommand: command not found\n"
    )


def test_environment_is_inherited_unchanged() -> None:
    given = {
        b"SECRET_TOKEN": b"s3cret",
        b"NOT_UTF8": b"\xff\xfe",
        b"HOME": b"/",
        b"LC_ALL": b"C.UTF-8",
    }
    code = "import os, nacre; os.write(1, nacre.run('cat /proc/$$/environ; true').output.head)"
    # /proc/$$/environ has the environment that the kernel passed to bash, without the variables
    # that bash adds.
    said = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, timeout=60)
    assert dict(each.split(b"=", 1) for each in said.stdout.rstrip(b"\0").split(b"\0")) == given


def test_a_given_environment_is_the_whole_environment() -> None:
    outcome = nacre.run("echo $A; echo ${HOME-none}", env={"A": "grün"})
    assert outcome.output.head == "grün\nnone\n".encode()


def test_bytes_that_are_not_utf8_pass_through() -> None:
    outcome = nacre.run(b"printf '\\xff%s' \"$A\"", env={b"A": b"\xfe"})
    assert outcome.output.head == b"\xff\xfe"


def test_the_directory(tmp_path: Path) -> None:
    assert nacre.run("pwd -P", cwd=tmp_path).output.head == os.fsencode(tmp_path.resolve()) + b"\n"


def test_timeout_returns_what_was_printed_before_it() -> None:
    outcome = nacre.run("echo early; sleep 60", timeout=1)
    assert outcome.ending == TimedOut(after=1, how=Killed(signal.SIGTERM))
    assert outcome.output.head == b"early\n"


@pytest.mark.parametrize("timeout", [3e6, 1e12, float("inf"), None])
def test_a_timeout_of_any_length(timeout: float | None) -> None:
    assert nacre.run("sleep 0.05", timeout=timeout).ending == Exited(0)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_makes_no_sense(timeout: float) -> None:
    ending = nacre.run("true", timeout=timeout).ending
    assert isinstance(ending, nacre.NotStarted)
    assert "is not possible" in str(ending.why)


def test_a_misspelt_wish_is_an_error_before_anything_runs() -> None:
    with pytest.raises(TypeError, match="no option 'timout'; did you mean 'timeout'"):
        nacre.run("true", timout=1)  # type: ignore[call-arg]


def test_a_refusal_has_the_streams_that_were_asked_for() -> None:
    assert nacre.run("a\0b", streams=Streams.SEPARATE).errors == Capture()


@pytest.mark.parametrize("wish", [{"timeout": "5"}, {"grace": "5"}, {"stdin": "text"}])
def test_wishes_of_the_wrong_type_are_an_error_before_anything_runs(wish: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        nacre.run("true", **wish)


def test_a_command_may_clean_up_in_its_grace() -> None:
    script = "trap 'echo cleaning; exit 7' TERM; echo on; while :; do sleep 0.05; done"
    outcome = nacre.run(script, timeout=1, grace=10)
    assert outcome.ending == TimedOut(after=1, how=Exited(7))
    assert outcome.output.head.startswith(b"on\n")  # bash may report its terminated `sleep`
    assert outcome.output.head.endswith(b"cleaning\n")


def test_output_printed_while_stopping_is_kept_though_it_floods() -> None:
    script = "trap 'head -c 3000000 /dev/zero; exit 0' TERM; while :; do sleep 0.05; done"
    outcome = nacre.run(script, timeout=1, grace=20)
    assert outcome.ending == TimedOut(after=1, how=Exited(0))
    assert outcome.output.tail == bytes(768 * 1024)
    assert 3_000_000 <= outcome.output.size < 3_000_100  # bash may report its terminated `sleep`


@pytest.mark.alone
def test_a_command_that_ignores_term_is_killed_after_the_grace() -> None:
    began = time.monotonic()
    outcome = nacre.run("trap '' TERM; echo on; while :; do sleep 0.05; done", timeout=1, grace=0.5)
    assert outcome.ending == TimedOut(after=1, how=Killed(signal.SIGKILL))
    assert 1.5 <= time.monotonic() - began < 20


def test_a_flood_that_ignores_term_dies_in_time_with_its_output() -> None:
    keep = Keep(whole=4096, head=1024, tail=1024)
    outcome = nacre.run("trap '' TERM; yes", timeout=1, grace=0.3, keep=keep)
    assert outcome.ending == TimedOut(after=1, how=Killed(signal.SIGKILL))
    assert outcome.output.head == b"y\n" * 512
    assert len(outcome.output.tail) == 1024
    assert outcome.output.size > 1_000_000
    assert outcome.output.newlines in (outcome.output.size // 2, (outcome.output.size + 1) // 2)


def test_background_work_does_not_hold_the_reply() -> None:
    began = time.monotonic()
    outcome = nacre.run("sleep 60 & echo done")
    try:
        assert time.monotonic() - began < 5
        assert outcome.ending == Exited(0)
        assert outcome.output.head == b"done\n"
        (left,) = outcome.left_running
        assert left.command == "sleep 60"
        assert alive(left.pid)
    finally:
        end(outcome.left_running)


@pytest.mark.parametrize(
    "script",
    [
        "setsid sleep 61 >/dev/null 2>&1 & echo x",
        "(setsid sleep 61 >/dev/null 2>&1 &) ; echo x",
        "nohup sleep 61 >/dev/null 2>&1 & disown; echo x",
        "env -i setsid nohup /bin/sh -c 'exec sleep 61' >/dev/null 2>&1 & sleep 0.2; echo x",
    ],
)
def test_what_was_left_running_is_known_wherever_it_went(script: str) -> None:
    outcome = nacre.run(script)
    try:
        assert outcome.output.head == b"x\n"
        (left,) = outcome.left_running
        # The run's shell may have exited before the leftover process called exec for `sleep`.
        eventually(lambda: processes.command_line(left.pid) == "sleep 61")
    finally:
        end(outcome.left_running)


def test_a_left_behind_writer_is_drained_and_lives_on(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    # The background job writes more bytes than a pipe buffer holds. So the job reaches `touch` only
    # if nacre reads the pipe.
    outcome = nacre.run(f"(sleep 0.3; head -c 400000 /dev/zero; touch {mark}; sleep 60) & echo x")
    try:
        assert outcome.output.head == b"x\n"
        assert not mark.exists()
        eventually(lambda: nacre.run("sleep 0.05") and mark.exists())
        assert alive(outcome.left_running[0].pid)
    finally:
        end(outcome.left_running)


def test_a_flood_that_outlives_its_shell_does_not_hold_the_reply() -> None:
    began = time.monotonic()
    outcome = nacre.run("yes & echo done >&2", streams=Streams.SEPARATE)
    try:
        assert time.monotonic() - began < 5
        assert outcome.errors is not None
        assert outcome.errors.head == b"done\n"
        assert [left.command for left in outcome.left_running] == ["yes"]
    finally:
        end(outcome.left_running)


@pytest.mark.parametrize(
    ("script", "output"),
    [
        (b"echo hello > >(sleep 0.3; cat)", b"hello\n"),
        (b"(sleep 0.3; echo late) & echo first", b"first\nlate\n"),
    ],
)
def test_the_drain_is_over_when_the_last_holder_lets_go(script: bytes, output: bytes) -> None:
    command = Command(original=script, script=script, cwd=os.fsencode(Path.cwd()))
    began = time.monotonic()
    outcome = Engine().start(Plan(command=command, limits=Limits(drain=30.0))).wait()
    assert outcome.output.head == output
    # `cat` closes its output shortly before it exits, so `cat` may still be a leftover process.
    assert [each for each in outcome.left_running if each.command != "cat"] == []
    assert time.monotonic() - began < 20


def test_spill_through_the_engine(tmp_path: Path) -> None:
    outcome = nacre.run(
        "seq 100000",
        keep=Keep(whole=1000, head=10, tail=10),
        spill=Spill(directory=os.fsencode(tmp_path), when=When.OVERFLOW),
    )
    saved = outcome.output.saved
    assert saved is not None
    assert saved.path is not None
    assert saved.complete
    assert Path(os.fsdecode(saved.path)).read_text() == "".join(f"{i}\n" for i in range(1, 100001))
    assert outcome.output.newlines == 100000


def test_a_wall_clock_that_jumps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: -1e9)
    assert nacre.run("sleep 0.1", timeout=5).ending == Exited(0)


def test_a_host_that_ignores_sigchld_learns_the_code_or_that_it_is_lost() -> None:
    """With SIGCHLD ignored, the kernel reaps a child at once, perhaps before nacre has a pidfd.
    Since Linux 6.15 a pidfd still reports the exit status of a reaped child. nacre reports an
    unknown exit status as lost and never guesses."""
    code = (
        "import signal, nacre\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "for script, code in (('exit 7', 7), ('kill -9 $$', 137), ('sleep 0.3; exit 3', 3)):\n"
        "    outcome = nacre.run('echo out; ' + script)\n"
        "    print(outcome.output.head, outcome.exit_code in (code, None))\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout == "b'out\\n' True\n" * 3, said.stderr


def test_a_host_without_standard_descriptors_can_run_commands() -> None:
    code = (
        "import os\n"
        "keep = os.dup(1)\n"
        "for fd in (0, 1, 2): os.close(fd)\n"
        "import nacre\n"
        "os.write(keep, nacre.run('echo hi; echo err >&2').output.head)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert said.stdout == b"hi\nerr\n"


def test_a_fork_of_the_host_can_run_commands_of_its_own() -> None:
    code = (
        "import os, nacre\n"
        "t = nacre.Tool('harness'); t.call({'command': 'true'})\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(t.call({'command': 'exit 5'}).details['exitCode'])\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "print(code, t.call({'command': 'exit 6'}).text)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout.startswith("5 ")
    assert '"exitCode":6' in said.stdout
