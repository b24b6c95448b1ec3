"""Tests of the warden: one per state directory, lazy start, exit when idle, access by its owner."""

import asyncio
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import nacre
from nacre.model import requests
from nacre.model.plan import Command, OpenStdin, Plan, Spill
from nacre.model.refusals import UnknownRun
from nacre.procfs import processes
from nacre.store import run_owner
from nacre.store.state_dir import check_private
from nacre.warden import endpoint, protocol
from nacre.warden.protocol import Hello, Problem, RequestFrame, ResponseFrame, Welcome
from tests.support import wardens
from tests.support.command_line import run_nacre
from tests.support.helpers import alive, eventually, named

pytestmark = pytest.mark.slow

HELLO = Hello(protocol=protocol.PROTOCOL, version=nacre.__version__)


def tool(cwd: Path, contract: str = "harness") -> nacre.Tool:
    return nacre.Tool(contract, cwd=cwd, place="warden")


def test_ten_programs_that_start_one_at_once_get_one(tmp_path: Path, home: Path) -> None:
    with ThreadPoolExecutor(10) as pool:
        done = list(
            pool.map(
                lambda i: run_nacre("run", "--detach", "--", f"echo {i}", cwd=tmp_path),
                range(10),
            )
        )
    assert [each.stderr for each in done] == [""] * 10
    assert len({each.stdout for each in done}) == 10
    eventually(lambda: len(wardens.find(home)) == 1)  # surplus wardens exit


def test_it_goes_when_it_is_idle_and_the_next_call_starts_another(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_WARDEN_IDLE", "0.3")
    with tool(tmp_path) as one:
        for number in range(3):
            assert one.call({"command": f"echo {number}"}).details["stdout"] == f"{number}\n"
            eventually(lambda: not wardens.find(home))
            assert not (home / endpoint.SOCKET).exists()
        # A running command keeps the warden alive.
        run = one.start({"command": "sleep 0.8; exit 5"})
        outcome = run.wait(10)
        assert outcome is not None
        assert outcome.exit_code == 5


def test_asks_that_meet_one_that_goes_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_WARDEN_IDLE", "0")
    with tool(tmp_path) as one:
        for number in range(15):
            reply = one.call({"command": f"echo {number}"})
            assert reply.details == {"stdout": f"{number}\n", "stderr": "", "exitCode": 0}
            time.sleep(0.001 * (number % 4))


def test_its_command_line_says_what_it_is_and_its_environment_has_no_secrets(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234")
    monkeypatch.setenv("SOMETHING", "else")
    with tool(tmp_path, "phoenix") as one:
        said = one.call({"command": "cat /proc/$PPID/environ; echo; cat /proc/$PPID/cmdline"}).text
    assert "sk-1234" not in said
    assert "SOMETHING" not in said
    (warden,) = wardens.find(home)
    assert "nacre warden" in processes.command_line(warden.pid)
    assert processes.read_process(warden.pid).session == warden.pid  # type: ignore[union-attr]


def test_a_command_there_has_its_callers_directory_umask_limits_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "yes")
    asked = {"command": "umask; ulimit -Sn; ulimit -Hn; ulimit -Sc; echo $MINE; pwd; ulimit -St"}
    with nacre.Tool("harness", cwd=tmp_path) as here, tool(tmp_path) as there:
        assert there.call(asked).details == here.call(asked).details
        before, limit = os.umask(0o027), resource.getrlimit(resource.RLIMIT_NOFILE)
        core = resource.getrlimit(resource.RLIMIT_CORE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (500, limit[1]))
            resource.setrlimit(resource.RLIMIT_CORE, (0, core[1]))
            told = there.call(asked).details
            assert told == here.call(asked).details
            assert told["stdout"].startswith("0027\n500\n")
        finally:
            os.umask(before)
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            resource.setrlimit(resource.RLIMIT_CORE, core)


def test_lower_hard_limits_and_those_that_would_hit_the_warden_travel_too(tmp_path: Path) -> None:
    code = (
        "import nacre, resource\n"
        "with nacre.Tool('harness', place='warden') as tool:\n"
        "    tool.call({'command': 'true'})\n"
        "    resource.setrlimit(resource.RLIMIT_NPROC, (4000, 5000))\n"
        "    resource.setrlimit(resource.RLIMIT_CPU, (1000, 2000))\n"
        "    asked = {'command': 'ulimit -Su; ulimit -Hu; ulimit -St; ulimit -Ht'}\n"
        "with nacre.Tool('harness', place='warden') as tool:\n"
        "    print(tool.call(asked).details)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    expected = {"stdout": "4000\n5000\n1000\n2000\n", "stderr": "", "exitCode": 0}
    assert said.stdout == f"{expected}\n", said.stderr


def test_it_reaps_and_what_escapes_is_found(tmp_path: Path, home: Path) -> None:
    with tool(tmp_path) as one:
        script = (
            "for i in 1 2 3 4 5; do setsid -f true; done; env -i setsid -f sleep 300.871; sleep 30"
        )
        run = one.start({"command": script})
        eventually(lambda: named("300.871"))
        (warden,) = wardens.find(home)
        run.end(grace=1)
        assert not named("300.871")
        eventually(
            lambda: (
                not [p for p in processes.read_all_processes().values() if p.parent == warden.pid]
            )
        )


def test_many_clients_see_to_one_run(tmp_path: Path) -> None:
    with tool(tmp_path) as one, tool(tmp_path, "phoenix") as two, tool(tmp_path, "pi") as three:
        run = one.start({"command": "read x; echo $x; exit 9"}, interactive=True)
        outcomes: list[nacre.Outcome | None] = []
        waiting = threading.Thread(target=lambda: outcomes.append(three.run(run.id).wait(10)))
        waiting.start()
        two.run(run.id).write("seen\n")
        waiting.join(10)
        assert [each and each.exit_code for each in outcomes] == [9]
        assert two.run(run.id).read().text == "seen\n"


def test_a_run_of_another_workspace_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with tool(tmp_path / "a") as one, tool(tmp_path / "b") as other:
        run = one.start({"command": "sleep 300.872"})
        assert other.runs() == []
        with pytest.raises(LookupError):
            other.run(run.id)
        # A request of another workspace does not find the run in the warden either.
        with _connected() as line:
            ask = requests.Signal(run=run.id, signal=9, workspace=b"/elsewhere")
            line.sendall(protocol.encode_frame(HELLO) + protocol.encode_frame(RequestFrame(1, ask)))
            no = requests.Rejected(refusal=UnknownRun(run=run.id))
            assert _heard(line, 2)[1] == ResponseFrame(1, no)
        assert run.state == "running"
        run.end(grace=1)


# Malformed frames and misbehaving clients


def _connected() -> socket.socket:
    made = endpoint.connect()
    assert made is not None
    made.settimeout(10)
    return made


def _heard(line: socket.socket, count: int) -> list[protocol.FromWarden]:
    incoming = protocol.FrameBuffer()
    found: list[protocol.FromWarden] = []
    while len(found) < count:
        data = line.recv(65536)
        if not data:
            break
        incoming.pieces.append(data)
        found += [protocol.decode_warden_frame(each) for each in incoming.frames()]
    return found


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\xc1",
        b"\0\0\0\0",
        protocol.encode_frame(protocol.Credit(1, 1)),  # no Hello frame before it
        protocol.encode_frame(Hello(protocol=0, version="0")),  # protocol is too old
        protocol.encode_frame(HELLO) + b"\0\0\0\5abcde",
    ],
)
def test_nonsense_ends_the_connection_and_nothing_else(nonsense: bytes, tmp_path: Path) -> None:
    with tool(tmp_path) as one:
        one.call({"command": "true"})
        with _connected() as line:
            line.sendall(nonsense)
            heard = _heard(line, 9)
            assert isinstance(heard[-1], Problem)
        assert one.call({"command": "echo on"}).details["stdout"] == "on\n"


def test_half_frames_and_clients_that_never_read_do_not_block_others(tmp_path: Path) -> None:
    with tool(tmp_path) as one:
        one.call({"command": "true"})
        with _connected() as half, _connected() as silent:
            half.sendall(protocol.encode_frame(HELLO) + b"\0\0\1\0abc")
            wishes = requests.ListenOptions(buffer=1024, full=nacre.Full.SKIP)
            plan = msgspec.structs.replace(_plan(b"yes"), spill=None)
            ask = requests.StartRun(plan=plan, workspace=b"/w", number=999, listen=wishes)
            silent.sendall(
                protocol.encode_frame(HELLO) + protocol.encode_frame(RequestFrame(1, ask))
            )
            for number in range(5):
                assert one.call({"command": f"echo {number}"}).details["stdout"] == f"{number}\n"
            silent.sendall(protocol.encode_frame(protocol.Cancel(1, signal.SIGKILL)))
            silent.settimeout(0.2)
            for _ in range(20000):
                try:
                    if not silent.recv(65536):
                        break
                except TimeoutError:
                    break


def _plan(script: bytes) -> Plan:
    command = Command(original=script, script=script, cwd=b"/", env={b"PATH": b"/usr/bin:/bin"})
    return Plan(command=command)


def test_a_client_that_asks_without_end_and_never_reads_is_let_go(tmp_path: Path) -> None:
    """The warden disconnects a client that leaves too many bytes of responses unread. Each response
    of this test has a megabyte."""
    with tool(tmp_path) as one:
        one.call({"command": "true"})
        (warden,) = wardens.find(Path(os.environ["NACRE_HOME"]))
        with _connected() as greedy:
            greedy.sendall(protocol.encode_frame(HELLO))
            try:
                for number in range(150):
                    plan = _plan(b"head -c 1000000 /dev/zero")
                    ask = requests.StartRun(plan=plan, workspace=b"/w", number=5000 + number)
                    greedy.sendall(protocol.encode_frame(RequestFrame(number, ask)))
            except OSError:
                pass
            eventually(lambda: one.call({"command": "echo x"}).details["stdout"] == "x\n")
        pages = int(Path(f"/proc/{warden.pid}/statm").read_text().split()[1])
        assert pages * 4096 < 400_000_000


# Permissions and ownership


def test_only_the_owner_can_reach_it(tmp_path: Path, home: Path) -> None:
    before = os.umask(0)
    try:
        with tool(tmp_path) as one:
            one.call({"command": "echo x; seq 100000"})
            one.start({"command": "true"}).wait(10)
    finally:
        os.umask(before)
    for path in [home, *home.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_umask_that_forbids_everything_is_no_obstacle(tmp_path: Path, home: Path) -> None:
    before = os.umask(0o777)
    try:
        with tool(tmp_path) as one:
            assert one.call({"command": "echo x"}).details["stdout"] == "x\n"
            assert one.start({"command": "true"}).wait(10) is not None
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_directory_that_others_may_write_to_is_not_used(
    mode: int, tmp_path: Path, home: Path
) -> None:
    home.mkdir()
    home.chmod(mode)
    with nacre.Tool("phoenix", cwd=tmp_path) as one:
        reply = one.call({"command": "touch made", "mode": "background"})
        assert reply.is_error
        assert "other users may write to it" in reply.text
        assert "chmod 700" in reply.text
        assert one.call({"command": "echo here"}).text == "here\n"  # in process, not stored
    assert not (tmp_path / "made").exists()
    assert [*home.iterdir()] == []
    home.chmod(0o700)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_directory_or_socket_of_another_user_is_not_used(tmp_path: Path, home: Path) -> None:
    home.mkdir()
    os.chown(home, 65534, 65534)
    with nacre.Tool("phoenix", cwd=tmp_path) as one:
        reply = one.call({"command": "true", "mode": "background"})
        assert "belongs to another user" in reply.text
    os.chown(home, 0, 0)
    os.symlink(home, tmp_path / "link")
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(PermissionError):
        check_private(str(tmp_path / "link"))


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_another_user_is_turned_away_even_with_the_socket_in_hand(
    tmp_path: Path, home: Path
) -> None:
    with tool(tmp_path) as one:
        one.call({"command": "true"})
        home.chmod(0o755)  # as after a careless chmod
        (home / endpoint.SOCKET).chmod(0o777)
        code = (
            "import os, socket, sys\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
            "s.settimeout(5); print(s.recv(10))\n"
        )
        said = subprocess.run(
            [sys.executable, "-c", code, str(endpoint.SOCKET)],
            cwd=home,  # other users cannot enter the parent directories
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert said.stdout == "b''\n", said.stderr
        home.chmod(0o700)


def test_a_symlink_in_the_way_is_not_followed(tmp_path: Path, home: Path) -> None:
    home.mkdir(mode=0o700)
    target = tmp_path / "target"
    for name in (endpoint.LOCK, endpoint.LOG, "counter"):
        (home / name).unlink(missing_ok=True)
        (home / name).symlink_to(target)
        with nacre.Tool("phoenix", cwd=tmp_path) as one:
            reply = one.call({"command": "true", "mode": "background"})
        assert reply.is_error
        assert not target.exists()
        (home / name).unlink()


def test_a_stale_socket_and_a_stale_lock_are_no_obstacle(tmp_path: Path, home: Path) -> None:
    home.mkdir(mode=0o700)
    for name in (endpoint.SOCKET, "warden.4194000.sock"):
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(home / name))
        stale.close()
    (home / endpoint.LOCK).write_text("old:1:2:warden\n")
    with tool(tmp_path) as one:
        assert one.call({"command": "echo x"}).details["stdout"] == "x\n"
    assert not (home / "warden.4194000.sock").exists()


def test_a_very_long_state_directory_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "state" / ("d" * 100) / ("e" * 100)
    monkeypatch.setenv("NACRE_HOME", str(deep))
    with tool(tmp_path) as one:
        assert one.call({"command": "echo x"}).details["stdout"] == "x\n"


def test_one_that_cannot_start_says_why(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(mode=0o700)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with nacre.Tool("phoenix", cwd=tmp_path) as one:
        begin = time.monotonic()
        reply = one.call({"command": "true", "mode": "background"})
    assert reply.is_error
    assert reply.text.startswith("[cannot run command: the warden cannot be reached: ")
    assert time.monotonic() - begin < 5


# Wardens of different versions

OLD = """
import sys
import nacre
from nacre.warden import protocol
protocol.PROTOCOL = int(sys.argv.pop(1))
protocol.OLDEST_PROTOCOL = int(sys.argv.pop(1))
nacre.__version__ = sys.argv.pop(1)
sys.argv[1:] = ["warden"]
from nacre.warden.main import entry
entry()
"""


def other_warden(home: Path, protocol: int, oldest: int, version: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", OLD, str(protocol), str(oldest), version],
        env={**os.environ, "NACRE_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    eventually(_connects)
    return process


def _connects() -> bool:
    try:
        made = endpoint.connect()
    except OSError:
        return False
    if made is None:
        return False
    made.close()
    return True


def test_an_older_warden_gives_its_place_to_a_newer_one_and_keeps_its_runs(
    tmp_path: Path, home: Path
) -> None:
    old = other_warden(home, protocol.PROTOCOL, protocol.OLDEST_PROTOCOL, "0.0.9")
    try:
        with _connected() as line:  # the client starts a run in the old warden
            plan = _plan(b"read x; echo $x; exit 8")
            plan = msgspec.structs.replace(plan, stdin=OpenStdin(), spill=Spill())
            workspace = os.fsencode(tmp_path)
            ask = requests.StartRun(plan=plan, workspace=workspace, wait_limit=0.0)
            line.sendall(protocol.encode_frame(HELLO) + protocol.encode_frame(RequestFrame(1, ask)))
            heard = _heard(line, 2)
            assert isinstance(heard[0], Welcome)
            assert heard[0].version == "0.0.9"
        with tool(tmp_path) as one:
            assert one.call({"command": "echo new"}).details["stdout"] == "new\n"
            now = run_owner.parse_owner(endpoint.read_owner() or "")
            assert now is not None
            assert now.pid != old.pid
            (run,) = [each for each in one.runs() if each.state == "running"]
            run.write("still reachable\n")
            outcome = run.wait(10)
            assert outcome is not None
            assert outcome.exit_code == 8
            assert run.read().text == "still reachable\n"
        old.wait(10)  # the old warden has no more runs and exits
    finally:
        old.kill()
        old.wait(10)


def test_a_warden_that_is_too_new_is_named_with_the_remedy(tmp_path: Path, home: Path) -> None:
    new = other_warden(home, protocol.PROTOCOL + 5, protocol.PROTOCOL + 4, "9.0.0")
    try:
        with nacre.Tool("phoenix", cwd=tmp_path) as one:
            reply = one.call({"command": "true", "mode": "background"})
        assert reply.is_error
        assert "update" in reply.text
        assert alive(new.pid)
    finally:
        new.terminate()
        new.wait(10)


def test_a_newer_warden_that_still_speaks_our_protocol_is_used(tmp_path: Path, home: Path) -> None:
    new = other_warden(home, protocol.PROTOCOL + 1, protocol.PROTOCOL, "9.0.0")
    try:
        with tool(tmp_path) as one:
            assert one.call({"command": "echo x"}).details["stdout"] == "x\n"
        assert alive(new.pid)
    finally:
        new.terminate()
        new.wait(10)


# Frames over stdin and stdout


def test_the_frames_go_through_stdin_and_stdout(tmp_path: Path, home: Path) -> None:
    bridge = subprocess.Popen(
        [str(Path(sys.executable).parent / "nacre"), "warden", "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert bridge.stdin is not None
    assert bridge.stdout is not None
    ask = requests.StartRun(plan=_plan(b"echo far; exit 3"), workspace=b"/w")
    bridge.stdin.write(protocol.encode_frame(HELLO) + protocol.encode_frame(RequestFrame(1, ask)))
    bridge.stdin.flush()
    incoming = protocol.FrameBuffer()
    found: list[protocol.FromWarden] = []
    while len(found) < 2:
        incoming.pieces.append(os.read(bridge.stdout.fileno(), 65536))
        found += [protocol.decode_warden_frame(each) for each in incoming.frames()]
    bridge.communicate(timeout=10)
    assert isinstance(found[0], Welcome)
    assert isinstance(found[1], ResponseFrame)
    assert isinstance(found[1].response, nacre.Outcome)
    assert (found[1].response.exit_code, found[1].response.output.head) == (3, b"far\n")
    assert bridge.returncode == 0
    assert len(wardens.find(home)) == 1


def test_nacre_warden_says_that_there_is_one(tmp_path: Path, home: Path) -> None:
    with tool(tmp_path) as one:
        one.call({"command": "true"})
        said = run_nacre("warden")
    assert said.returncode == 0
    assert "a warden is running already" in said.stderr
    assert len(wardens.find(home)) == 1


def test_term_ends_it_with_all_that_it_runs(tmp_path: Path, home: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as one:
        reply = one.call({"command": "sleep 300.873", "mode": "background"})
        (warden,) = wardens.find(home)
        os.kill(warden.pid, signal.SIGTERM)
        eventually(lambda: not alive(warden.pid))
        assert not named("300.873")
        text = Path(reply.details["output_file"]).read_text()
        assert text == "\n\n[background process failed: signal 15 (SIGTERM)]\n"
        assert one.run(reply.run or "").state == "cancelled"


def test_a_hundred_calls_at_once_are_not_mixed_up(tmp_path: Path) -> None:
    async def main() -> list[str]:
        with tool(tmp_path) as one:
            calls = (one.acall({"command": f"sleep 0.1; echo {i}"}) for i in range(100))
            return [reply.details["stdout"] for reply in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [f"{i}\n" for i in range(100)]


# Behaviour of the host process


def host(code: str, cwd: Path) -> str:
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=60
    )
    assert said.stderr == ""
    return said.stdout


def test_a_fork_of_the_host_disturbs_nothing(tmp_path: Path) -> None:
    said = host(
        "import nacre, os\n"
        "tool = nacre.Tool('harness', place='warden')\n"
        "say = lambda n: print(tool.call({'command': f'echo {n}'}).details['stdout'], end='',"
        " flush=True)\n"
        "say(1)\n"
        "if (child := os.fork()) == 0:\n"
        "    say(2)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "say(3)\n"
        "say(4)\n"
        "tool.close()\n",
        tmp_path,
    )
    assert said == "1\n2\n3\n4\n"


def test_a_host_that_closes_all_descriptors_does_not_disturb_the_tool(tmp_path: Path) -> None:
    said = host(
        "import nacre, os\n"
        "tool = nacre.Tool('harness', place='warden')\n"
        "print(tool.call({'command': 'echo 1'}).details['stdout'])\n"
        "os.closerange(3, 200)\n"
        "files = [open('/dev/null') for _ in range(20)]\n"
        "print(tool.call({'command': 'echo 2'}).details['stdout'])\n"
        "tool.close()\n"
        "[file.read() for file in files]\n",
        tmp_path,
    )
    assert said == "1\n\n2\n\n"


def test_threads_each_have_a_line_of_their_own(tmp_path: Path) -> None:
    with tool(tmp_path) as one, ThreadPoolExecutor(8) as pool:
        done = pool.map(lambda i: one.call({"command": f"sleep 0.05; echo {i}"}), range(40))
        assert [each.details["stdout"] for each in done] == [f"{i}\n" for i in range(40)]


def test_an_interrupt_ends_the_command_and_is_raised_again(tmp_path: Path) -> None:
    said = host(
        "import nacre, os, signal, threading\n"
        "tool = nacre.Tool('harness', place='warden')\n"
        "tool.call({'command': 'true'})\n"
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    tool.call({'command': 'sleep 300.874'})\n"
        "except KeyboardInterrupt:\n"
        "    print('raised', tool.runs()[0].state)\n"
        "print(tool.call({'command': 'echo on'}).details['stdout'])\n"
        "tool.close()\n",
        tmp_path,
    )
    assert said == "raised cancelled\non\n\n"
    assert not named("300.874")
