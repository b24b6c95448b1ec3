"""Tests of machine faults: nacre reports each fault as a sentence, without traceback or hang."""

import os
import re
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import nacre
from nacre import Exited, NotStarted
from nacre.model.refusals import BadArguments, BadDirectory, CannotSpawn, DirectoryProblem, NoShell

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def host(code: str, **options: object) -> str:
    """Run code in a new Python process, as a user of nacre would, and return its output."""
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,  # type: ignore[call-overload]
    )
    assert "Traceback" not in said.stderr, said.stderr
    return str(said.stdout)


def test_no_bash() -> None:
    outcome = nacre.run("true", shell="/nonexistent/bash")
    assert outcome.ending == NotStarted(
        NoShell(path=b"/nonexistent/bash", reason="no such file or directory")
    )
    assert isinstance(outcome.ending, NotStarted)
    assert str(outcome.ending.why) == (
        "cannot start /nonexistent/bash (no such file or directory); install bash there"
    )


def test_a_bash_that_may_not_be_executed(tmp_path: Path) -> None:
    shell = tmp_path / "bash"
    shell.write_text("#!/bin/sh\n")
    outcome = nacre.run("true", shell=shell)
    assert outcome.ending == NotStarted(
        NoShell(path=os.fsencode(shell), reason="permission denied")
    )


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert nacre.run("true", cwd=gone).ending == NotStarted(
        BadDirectory(path=os.fsencode(gone), problem=DirectoryProblem.MISSING)
    )


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert nacre.run("true", cwd=file).ending == NotStarted(
        BadDirectory(path=os.fsencode(file), problem=DirectoryProblem.NOT_A_DIRECTORY)
    )


def test_our_own_directory_is_gone(tmp_path: Path) -> None:
    said = host(
        """
        import os, nacre
        os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
        print(nacre.run("true").ending.why)
        with nacre.Tool("harness") as tool:
            print(tool.call({"command": "true"}).text)
        """,
        cwd=tmp_path,
    )
    assert said == (
        "cwd . does not exist; choose another directory\n"
        '{"error":"cwd . does not exist; choose another directory"}\n'
    )


def test_a_nul_in_the_command() -> None:
    assert nacre.run("echo a\0b").ending == NotStarted(
        BadArguments(problem="command contains a NUL byte; remove it")
    )


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"": "c"}, {"A": "b\0c"}])
def test_variables_that_cannot_be(env: dict[str, str]) -> None:
    ending = nacre.run("true", env=env).ending
    assert isinstance(ending, NotStarted)
    assert isinstance(ending.why, BadArguments)


def test_an_environment_that_is_too_large() -> None:
    ending = nacre.run("true", env={f"A{i}": "x" * 100_000 for i in range(200)}).ending
    assert ending == NotStarted(CannotSpawn(reason="its environment is too large for this system"))


def test_out_of_descriptors() -> None:
    said = host("""
        import os, resource, nacre
        nacre.run("true")
        tool = nacre.Tool("harness")
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        held = []
        try:
            while True: held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError: pass
        for spare in range(20):
            print(nacre.run("echo hi").ending, tool.call({"command": "echo hi"}).text)
            os.close(held.pop())
    """)
    lines = said.splitlines()
    assert len(lines) == 20
    assert "no file descriptors left (limit 40); raise it with ulimit -n" in lines[0]
    assert lines[-1] == 'Exited(code=0) {"stdout":"hi\\n","stderr":"","exitCode":0}'


UNPRIVILEGED = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="NEEDS ROOT, to become somebody with a limit")
def test_out_of_processes() -> None:
    said = host("""
        import os, resource, nacre
        nacre.run("true")
        tool = nacre.Tool("harness")
        os.setgroups([]); os.setgid(64123); os.setuid(64123); os.chdir("/")
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        print(nacre.run("echo hi").ending.why)
        print(tool.call({"command": "echo hi"}).text)
        print(tool.call({"command": "echo hi"}, listen=print).text)
    """)
    assert said.count("the system will not start another process") == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="NEEDS ROOT, to become somebody without rights")
def test_without_rights(tmp_path: Path) -> None:
    forbidden = tmp_path / "forbidden"
    forbidden.mkdir(mode=0o700)
    said = host(f"""
        import os, nacre
        nacre.run("true"); tool = nacre.Tool("harness", cwd={str(forbidden)!r})
        os.environ["NACRE_HOME"] = "/root/nope"; os.environ["TMPDIR"] = "/root"
        os.setgroups([]); os.setgid({UNPRIVILEGED}); os.setuid({UNPRIVILEGED}); os.chdir("/")
        print(nacre.run("id -u").output.head)
        print(tool.call({{"command": "true"}}).text)
        print(tool.audit_problem)
        print(nacre.run("(setsid sleep 98763 &); sleep 98763", timeout=0.4, grace=0.2).left_running)
    """)
    first, second, third, last = said.splitlines()
    assert first == "b'65534\\n'"
    assert "cannot be entered (permission denied)" in second
    assert third.startswith("the audit log could not be written: ")
    assert last == "()"


def test_a_disk_that_is_full_while_spilling(tmp_path: Path) -> None:
    """Simulate a full disk by a file size limit, which works on every machine."""
    said = host(
        f"""
        import resource, signal, nacre
        from nacre import Keep, Spill, When
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        outcome = nacre.run("head -c 300000 /dev/zero", keep=Keep(whole=10, head=5, tail=5),
                            spill=Spill(directory={os.fsencode(tmp_path)!r}))
        print(outcome.ending, outcome.output.size, outcome.output.saved.size)
        print(outcome.output.saved.problem)
        """
    )
    assert said == (
        "Exited(code=0) 300000 100000\n"
        "the output could not be saved past 100000 bytes: file too large\n"
    )


def test_a_temporary_directory_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    outcome = nacre.run(
        "seq 1000",
        keep=nacre.Keep(whole=10, head=5, tail=5),
        spill=nacre.Spill(),
    )
    assert outcome.ending == Exited(0)
    assert outcome.output.saved is not None
    assert outcome.output.saved.path is None
    assert re.match("the output could not be saved: ", outcome.output.saved.problem or "")


def test_an_audit_log_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_HOME", "/proc/nope")
    with nacre.Tool("harness") as tool:
        assert tool.call({"command": "echo hi"}).details["stdout"] == "hi\n"
        assert tool.audit_problem is not None


def test_an_audit_log_that_is_a_fifo_is_no_reason_to_hang(home: Path) -> None:
    home.mkdir()
    os.mkfifo(home / "audit.jsonl")
    with nacre.Tool("harness") as tool:
        assert tool.call({"command": "echo hi"}).details["stdout"] == "hi\n"
        assert tool.audit_problem is not None


def test_many_at_once_under_1024_descriptors() -> None:
    """500 simultaneous commands need more than 1024 descriptors. Some of the commands wait in the
    queue, and every command gets a reply."""
    said = host("""
        import asyncio, resource, threading, nacre
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
        async def all_at_once():
            with nacre.Tool("harness") as tool:
                return await asyncio.gather(
                    *(tool.acall({"command": f"sleep 0.2; echo {i}"}) for i in range(500)))
        replies = asyncio.run(all_at_once())
        print([r.details.get("stdout", r.text) for r in replies] == [f"{i}\\n" for i in range(500)])
        print(threading.active_count())
    """)
    assert said == "True\n1\n"


def test_many_at_once_with_hardly_any_descriptors() -> None:
    said = host("""
        import asyncio, os, resource, nacre
        resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(60)]
        async def all_at_once():
            with nacre.Tool("harness") as tool:
                return await asyncio.gather(
                    *(tool.acall({"command": f"sleep 0.05; echo {i}"}) for i in range(40)))
        replies = asyncio.run(all_at_once())
        print([r.details.get("stdout", r.text) for r in replies] == [f"{i}\\n" for i in range(40)])
    """)
    assert said == "True\n"


def test_a_thread_without_a_descriptor_for_its_event_loop_gets_an_error() -> None:
    said = host("""
        import os, resource, threading, nacre
        tool = nacre.Tool("harness")
        tool.call({"command": "true"})
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        texts = []
        def one(i):
            texts.append(tool.call({"command": f"sleep 0.2; echo {i}"}).text)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(30)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        good = [text for text in texts if '"exitCode":0' in text]
        bad = [text for text in texts if "no file descriptors left" in text]
        print(len(texts), len(good) + len(bad), len(good) > 0, len(bad) > 0)
    """)
    assert said == "30 30 True True\n"


def test_a_command_inherits_the_descriptor_limit_of_the_host() -> None:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert nacre.run("ulimit -n").output.head == b"%d\n" % soft
