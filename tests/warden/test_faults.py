"""Regression tests: each test reproduces a fault that has really happened."""

import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

import nacre
from nacre.model import requests
from nacre.model.outcome import Exited, Killed, Lost
from nacre.model.plan import CompletionLine
from nacre.store import journal, run_owner, stored_run
from nacre.store.journal import EndEntry, StoredStream
from nacre.warden import client_connection, endpoint, protocol
from nacre.warden.protocol import Hello, Problem, RequestFrame, ResponseFrame, Welcome
from tests.support import wardens
from tests.support.helpers import WAIT_FOR_GO, eventually, named

pytestmark = pytest.mark.slow

HELLO = Hello(protocol=protocol.PROTOCOL, version=nacre.__version__)


def there(cwd: Path, contract: str = "harness", **options: object) -> nacre.Tool:
    return nacre.Tool(contract, cwd=cwd, place="warden", options=options)


def test_a_call_that_is_cancelled_while_its_warden_starts_leaves_the_tool_usable(
    tmp_path: Path, home: Path
) -> None:
    for number in range(4):
        with there(tmp_path) as tool:
            token = nacre.CancelToken()
            threading.Timer(0.01 * number, token.cancel).start()
            tool.call({"command": "true"}, cancel=token)
            assert tool.call({"command": "echo on"}).details["stdout"] == "on\n"
        wardens.end(home)


@pytest.mark.parametrize("full", [nacre.Full.SKIP, nacre.Full.WAIT])
def test_a_job_is_heard_past_the_first_window(full: nacre.Full, tmp_path: Path) -> None:
    heard: list[nacre.Event] = []
    wish = nacre.Listening(listener=heard.append, full=full, buffer=1 << 26)
    with nacre.Tool("pi", cwd=tmp_path, options={"async": True}) as tool:
        tool.call({"command": "seq 500000", "async": True}, listen=wish)
        for _ in range(400):
            tool.call({"command": "true"})  # the supervisor delivers events during calls
            if heard and isinstance(heard[-1], nacre.Finished):
                break
    chunks = [each for each in heard if isinstance(each, nacre.Chunk)]
    assert sum(len(each.data) for each in chunks) == len(
        "".join(f"{i}\n" for i in range(1, 500001))
    )


@pytest.mark.parametrize(
    "ask",
    [
        {"type": "Signal", "run": "r1", "signal": 2**40, "workspace": b""},
        {"type": "Signal", "run": "r1", "signal": -1, "workspace": b""},
        {"type": "End", "run": "r1", "workspace": b"", "signal": 15, "grace": -1.0},
        {"type": "Wait", "run": "r1", "workspace": b"", "patience": -1.0},
    ],
)
def test_numbers_that_make_no_sense_end_the_connection(
    ask: dict[str, object], tmp_path: Path
) -> None:
    with there(tmp_path) as tool:
        tool.call({"command": "true"})
        made = endpoint.connect()
        assert made is not None
        with made:
            made.settimeout(10)
            data = msgspec.msgpack.encode({"type": "Asked", "id": 1, "ask": ask})
            made.sendall(protocol.encode_frame(HELLO) + len(data).to_bytes(4, "big") + data)
            incoming = protocol.FrameBuffer()
            found: list[protocol.FromWarden] = []
            while piece := made.recv(65536):
                incoming.pieces.append(piece)
                found += [protocol.decode_warden_frame(each) for each in incoming.frames()]
        assert isinstance(found[0], Welcome)
        assert isinstance(found[-1], Problem)
        assert tool.call({"command": "echo on"}).details["stdout"] == "on\n"


def test_a_run_that_cannot_be_written_down_is_not_kept_for_ever(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_WARDEN_IDLE", "0.2")
    with there(tmp_path) as tool:
        tool.call({"command": "true"})
        for path in (home / "journal").iterdir():
            path.rename(tmp_path / path.name)
            path.write_text("in the way")
        reply = tool.call({"command": "echo still"})
        assert reply.details["stdout"] == "still\n"
    eventually(lambda: not wardens.find(home))


def test_what_is_refused_for_want_of_a_file_is_no_run_that_never_ends(
    tmp_path: Path, home: Path
) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        tool.start({"command": "true"}).wait(10)
        (home / "runs").rename(home / "away")
        (home / "runs").write_text("in the way")
        assert tool.call({"command": "true", "mode": "background"}).is_error
        (home / "runs").unlink()
        (home / "away").rename(home / "runs")
        assert [run.state for run in tool.runs()] == ["not_started", "exited"]
        assert tool.run("r2").wait(5) is not None


def test_an_end_that_only_the_journal_has_is_found(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        run = tool.start({"command": "sleep 0.5; exit 3"})
        (home / "runs").rename(home / "away")
        outcome = run.wait(5)
        assert outcome is not None
        assert outcome.ending == Exited(3)
        assert run.state == "exited"


def test_a_wait_ends_although_the_end_of_the_run_is_unrecorded(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        run = tool.start({"command": "sleep 0.5; exit 3"})
        waiting = run
        (home / "runs").rename(home / "away")
        for path in (home / "journal").iterdir():
            for file in path.iterdir():
                file.rename(home / "taken")
            path.chmod(0o500)
            path.rename(home / "journal" / "elsewhere")
        begin = time.monotonic()
        with pytest.raises(LookupError):
            waiting.wait(1)  # the journal has been moved, so the run is unknown
        assert time.monotonic() - begin < 5
        (home / "journal" / "elsewhere").chmod(0o700)


def test_waiting_for_one_that_stands_in_line_ends_in_time(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path, place="warden") as tool:
        first = threading.Thread(target=lambda: tool.call({"command": WAIT_FOR_GO}))
        first.start()
        eventually(lambda: tool.runs())
        second = threading.Thread(target=lambda: tool.call({"command": "echo 2"}))
        second.start()
        eventually(lambda: len(tool.runs()) == 2)
        made = endpoint.connect()
        assert made is not None
        with made:
            made.settimeout(5)
            ask = requests.Wait(run="r2", workspace=os.fsencode(tmp_path), wait_limit=0.1)
            made.sendall(protocol.encode_frame(HELLO) + protocol.encode_frame(RequestFrame(1, ask)))
            incoming = protocol.FrameBuffer()
            found: list[protocol.FromWarden] = []
            while len(found) < 2:
                incoming.pieces.append(made.recv(65536))
                found += [protocol.decode_warden_frame(each) for each in incoming.frames()]
        assert isinstance(found[1], ResponseFrame)
        assert isinstance(found[1].response, requests.Running)
        (tmp_path / "go").touch()
        first.join()
        second.join()


def test_a_client_does_not_hang_on_a_stopped_warden(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        run = tool.start({"command": "sleep 300.331"})
        monkeypatch.setattr(client_connection, "_CONNECT_TIMEOUT", 0.4)
        eventually(lambda: named("300.331"))
        (warden,) = wardens.find(home)
        os.kill(warden.pid, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            assert run.wait(0.3) is None
            run.end(grace=0.2)  # without the warden, by the identity in the run record
            assert not named("300.331")
            with nacre.Tool("phoenix", cwd=tmp_path) as another:
                reply = another.call({"command": "true", "mode": "background"})
            assert "it does not answer" in reply.text
            assert time.monotonic() - begin < 15
        finally:
            os.kill(warden.pid, signal.SIGCONT)


@pytest.mark.parametrize("size", [60_000, 70_000, 700_000, 3_000_000])
def test_what_is_written_arrives_whole(size: int, tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        run = tool.start({"command": "sleep 0.2; wc -c"}, interactive=True)
        run.write(b"z" * size)
        assert run.wait(0.5) is None  # `wc` still waits, because stdin is open
        run.write(b"", eof=True) if size < 1_000_000 else _at_last(run)
        outcome = run.wait(10)
        assert outcome is not None
        assert outcome.output.head.strip() == b"%d" % size


def _at_last(run: nacre.RunHandle) -> None:
    """Close the run's stdin. Retry while nacre refuses because its stdin buffer is full."""
    for _ in range(200):
        try:
            run.write(b"", eof=True)
        except nacre.Refused:
            time.sleep(0.02)
        else:
            return


def test_a_warden_does_not_pass_on_the_limits_of_the_client_that_started_it(tmp_path: Path) -> None:
    code = (
        "import nacre, resource\n"
        "for what in (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE):\n"
        "    hard = resource.getrlimit(what)[1]\n"
        "    resource.setrlimit(what, (100, hard))\n"
        "print(nacre.Tool('harness').start({'command': 'ulimit -Sn; ulimit -St'}).wait(10)"
        ".output.head)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        # The file size limit would also truncate bytecode files.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.stdout == "b'100\\n100\\n'\n", said.stderr
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        outcome = tool.start({"command": "head -c 500000 /dev/zero; ulimit -Sn"}).wait(10)
        assert outcome is not None
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert outcome.output.size == 500000 + len(f"{soft}\n")


def test_workspaces_whose_names_are_no_text_are_not_mixed_up(tmp_path: Path) -> None:
    places = [os.fsencode(tmp_path) + name for name in (b"/bad\xff", b"/bad\xfe")]
    for place in places:
        os.mkdir(place)
    with (
        nacre.Tool("harness", cwd=os.fsdecode(places[0])) as one,
        nacre.Tool("harness", cwd=os.fsdecode(places[1])) as other,
    ):
        run = one.start({"command": "sleep 300.332"})
        assert other.runs() == []
        with pytest.raises(LookupError):
            other.run(run.id)
        assert [each.id for each in one.runs()] == [run.id]
        run.end(grace=1)


@pytest.mark.parametrize(
    "said", [b"garbage", random.Random(7).randbytes(100_000)], ids=["a word", "noise"]
)
def test_garbage_on_the_bridge_is_answered_and_no_traceback(said: bytes, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "nacre"), "warden", "--stdio"],
        cwd=tmp_path,
        input=said,
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_bridge_still_brings_what_comes_after_the_last_word(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "nacre"), "warden", "--stdio"],
        cwd=tmp_path,
        input=protocol.encode_frame(HELLO),
        capture_output=True,
        timeout=60,
    )
    assert isinstance(protocol.decode_warden_frame(done.stdout[4:]), Welcome)


@pytest.mark.parametrize("ends", ["before the new connection", "after it"])
def test_a_lost_connection_is_not_a_dead_warden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The connection to the warden breaks. The run continues in the warden, and the client waits
    for it again over a new connection."""
    replies: list[nacre.Reply] = []
    go, connect = tmp_path / "go", endpoint.connect

    def connect_after_the_end(name: str) -> socket.socket | None:
        go.touch()
        eventually(lambda: stored_run.find_run(2, os.fsencode(tmp_path)).ending)
        return connect(name)

    with there(tmp_path) as tool:
        tool.call({"command": "true"})
        command = {"command": f"echo before; {WAIT_FOR_GO}; echo after; exit 3"}

        def call() -> None:
            replies.append(tool.call(command))

        thread = threading.Thread(target=call)
        thread.start()
        eventually(lambda: [each for each in tool.runs() if each.state == "running"])
        (supervisor,) = [
            each for each in tool._engine._supervisors.values() if each.context.connection
        ]
        broken = supervisor.context.connection
        assert isinstance(broken, client_connection.WardenConnection)
        assert broken._stream is not None
        if ends == "before the new connection":
            monkeypatch.setattr(endpoint, "connect", connect_after_the_end)
        broken._stream._socket.shutdown(2)
        eventually(
            lambda: (
                any(
                    isinstance(each.request, requests.Wait)
                    for each in list(broken._pending.values())
                )
                or replies
            )
        )
        go.touch()
        thread.join(20)
    (reply,) = replies
    assert reply.details["stdout"] == "before\nafter\n"
    assert reply.details["exitCode"] == 3


def test_an_end_that_was_half_written_is_finished_by_the_next_one(
    tmp_path: Path, home: Path
) -> None:
    """Kill the warden after it has written `outcome.draft`, and before it has appended the last
    line to the output file."""
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        reply = tool.call({"command": "echo x; sleep 300.333", "mode": "background"})
        file = Path(reply.details["output_file"])
        eventually(lambda: file.read_text() == "x\n")
        (warden,) = wardens.find(home)
        os.kill(warden.pid, signal.SIGSTOP)
        os.killpg(reply.details["pid"], signal.SIGKILL)
        last = "\n\n[background process failed: signal 9 (SIGKILL)]\n"
        ended = EndEntry(
            run=1,
            time=time.time(),
            ending=Killed(9),
            seconds=1.0,
            output=StoredStream(size=2, lines=1, hidden=((2, 2 + len(last)),)),
        )
        (file.parent / "outcome.draft").write_bytes(journal.encode_entry(ended) + b"\n")
        os.kill(warden.pid, signal.SIGKILL)
        eventually(lambda: not wardens.find(home))
        run = tool.run("r1")
        assert run.ending == Killed(9)
        assert run.read().text == "x\n"
        tool.start({"command": "true"}).wait(10)
        eventually(lambda: (file.parent / "outcome").exists())
        assert file.read_text() == f"x\n{last}"
        assert run.read().text == "x\n"


def test_ending_several_at_once_answers_when_all_have(tmp_path: Path) -> None:
    """One of the two runs has already ended, and its leftover process has exited."""
    with nacre.Tool("pi", cwd=tmp_path, options={"async": True, "grace": 0.4}) as tool:
        tool.call({"command": "sleep 0.336 &", "async": True})
        tool.call({"command": "trap '' TERM; sleep 300.334; sleep 300.334", "async": True})
        eventually(lambda: tool.run("r1").state == "exited" and not named("0.336"))
        reply = tool.call({"cancel": ["r1", "r2"]}, tool="job")
        statuses = [each["status"] for each in reply.details["cancelled"]]
        assert statuses == ["already_completed", "cancelled"]
        assert not named("300.334")


def test_the_completion_line_has_words_for_each_ending() -> None:
    words = CompletionLine(zero="z", exited="e {code}", killed="k {number} {name}", error="x {why}")
    assert words.text_of(Exited(0)) == "z"
    assert words.text_of(Exited(3)) == "e 3"
    assert words.text_of(Killed(9)) == "k 9 SIGKILL"
    assert words.text_of(Lost(1.0)).startswith("x the process that ran it was killed")


def test_a_handle_is_good_for_longer_than_its_tool(tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        run = tool.start({"command": "sleep 0.3; echo done"})
    outcome = run.wait(10)
    assert outcome is not None
    assert run.read().text == "done\n"
    assert run.read(since=99).cursor == 99
    for wrong in (lambda: run.read(since=-1), lambda: run.wait(-1), lambda: run.signal("FOO")):
        with pytest.raises(ValueError, match=r"number of seconds|cursor|signal"):
            wrong()
    assert stored_run.parse_run_id("17") == 17
    assert run_owner.parse_owner("nonsense") is None


def test_what_a_killed_caller_waited_for_is_handed_over(tmp_path: Path) -> None:
    """The warden stores the identity of the shell, because the warden may be killed next."""
    code = (
        "import nacre, sys\n"
        "nacre.Tool('harness', place='warden').call({'command': 'echo in; sleep 300.335'},\n"
        "    listen=lambda event: print(event, flush=True))\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert caller.stdout is not None
    caller.stdout.readline()
    caller.kill()
    caller.communicate()
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        (run,) = tool.runs()
        found = stored_run.find_run(1, os.fsencode(tmp_path))
        eventually(
            lambda: (
                stored_run.find_run(1, os.fsencode(tmp_path)).start_entry.detached_at is not None
            )
        )
        assert found.ending is None
        shell = stored_run.find_run(1, os.fsencode(tmp_path)).start_entry.shell
        assert shell is not None
        assert [each.pid for each in named("300.335")].count(shell.pid) == 1
        eventually(lambda: run.read().text == "in\n")
        run.end(grace=1)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_the_client_sends_nothing_to_a_socket_of_another_user(tmp_path: Path, home: Path) -> None:
    home.mkdir(mode=0o700)
    code = (
        "import os, socket, sys\n"
        "made = socket.socket(socket.AF_UNIX); made.bind(sys.argv[1])\n"
        "os.setgid(65534); os.setuid(65534); made.listen(8)\n"
        "print('up', flush=True)\n"
        "made.settimeout(20); peer, _ = made.accept(); peer.settimeout(5)\n"
        "print(len(peer.recv(1 << 20)), flush=True)\n"
    )
    thief = subprocess.Popen(
        [sys.executable, "-c", code, str(home / endpoint.SOCKET)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert thief.stdout is not None
    assert thief.stdout.readline() == "up\n"
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        reply = tool.call({"command": "true", "mode": "background"})
    assert reply.is_error
    assert "is served by another user" in reply.text
    assert thief.communicate(timeout=20)[0] == "0\n"
