"""Tests of the store: run numbers, journal, output files, reading, cleanup."""

import fcntl
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nacre
from nacre.model.caller import ReadPosition
from nacre.model.requests import Between, Last
from nacre.process import run_tag
from nacre.store import cleanup, journal, output_range, position_log, stored_run
from nacre.store.append_file import KEPT_ROTATIONS, AppendFile
from nacre.store.cleanup import StoreLimits
from nacre.store.journal import workspace_key
from nacre.store.stored_run import NoSuchRun
from tests.support.command_line import run_nacre_bytes
from tests.support.helpers import eventually

pytestmark = pytest.mark.slow

DAY = 24 * 3600.0


def lines(home: Path) -> list[dict[str, Any]]:
    (file,) = (home / "journal").glob("*/*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_is_two_lines_in_the_journal(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path, env={"A_TOKEN": "hunter2"}) as tool:
        tool.call({"command": "echo out; echo err >&2; exit 3"})
    begun, ended = lines(home)
    assert begun.pop("time") <= ended.pop("time")
    assert ended.pop("seconds") > 0
    assert begun.pop("owner").split(":")[1::2] == [str(os.getpid()), "host"]
    assert run_tag.parse_tag(begun.pop("tag")) is not None
    assert begun.pop("place") == workspace_key(os.fsencode(tmp_path))
    assert begun == {
        "type": "begun",
        "run": 1,
        "workspace": str(tmp_path),
        "cwd": str(tmp_path),
        "command": "echo out; echo err >&2; exit 3",
        "streams": "separate",
        "timeout": 30.0,
        "variables": ["A_TOKEN"],
    }
    assert ended == {
        "type": "ended",
        "run": 1,
        "ending": {"type": "Exited", "code": 3},
        "output": {"size": 4, "lines": 1, "data": "b3V0Cg=="},
        "errors": {"size": 4, "lines": 1, "data": "ZXJyCg=="},
    }
    assert "hunter2" not in (home / "audit.jsonl").read_text()
    assert not (home / "runs").exists()


def test_what_bash_got_is_written_down_where_it_is_something_else(
    home: Path, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    with nacre.Tool("pi", cwd=tmp_path) as tool:
        tool.call({"command": "cd d && ls", "timeout": 7})
    begun, _ = lines(home)
    assert (begun["command"], begun["script"]) == ("cd d && ls", "ls")
    assert (begun["cwd"], begun["workspace"]) == (f"{tmp_path}/d", str(tmp_path))
    assert (begun["timeout"], "PAGER" in begun["variables"]) == (7.0, True)


def test_a_refused_call_has_no_number(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        tool.call({"command": "rm -rf /"})
        tool.call({"command": "echo hi"})
    assert [line["run"] for line in lines(home)] == [1, 1]


def test_a_command_that_could_not_start_is_written_down(home: Path, tmp_path: Path) -> None:
    token = nacre.CancelToken()
    token.cancel()
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "echo hi"}, cancel=token)
    begun, ended = lines(home)
    assert begun["run"] == ended["run"] == 1
    assert ended["ending"] == {"type": "NotStarted", "why": {"type": "CalledOff"}}


def test_longer_output_has_a_directory_of_its_own(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "seq 10000; echo oops >&2"})  # too long to be stored in the journal
        tool.call({"command": "seq 300000"})  # too long to be kept in memory
    one, two = home / "runs" / "r1", home / "runs" / "r2"
    assert sorted(os.listdir(one)) == ["outcome", "output", "plan"]
    assert (one / "output").read_text().endswith("\n10000\n")
    assert (two / "output").read_text().endswith("\n300000\n")
    assert json.loads((two / "plan").read_text())["command"] == "seq 300000"
    outcome = json.loads((two / "outcome").read_text())
    assert outcome["output"] == {"size": 1988895, "lines": 300000}


def test_every_file_is_private_under_any_umask(home: Path, tmp_path: Path) -> None:
    code = """if True:
        import os, nacre
        os.umask(0)
        nacre.Tool("harness").call({"command": "seq 10000"})
        nacre.Tool("pi").call({"command": "cat artifact://1 > local://x/y; echo small"})
        nacre.Tool("pi").call({"command": "cat artifact://2 > /dev/null"})
    """
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    made = [home, *home.rglob("*")]
    assert home / "runs" / "r2" / "output" in made
    for path in made:
        if path.name != "y":  # the command itself created this file
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_numbers_are_never_given_twice(home: Path) -> None:
    """Eight processes count at the same time, each with two counters and a fork."""
    code = """if True:
        import os, nacre
        from nacre.store.append_file import AppendFile
        one, two = AppendFile(), AppendFile()
        path = os.environ["NACRE_HOME"] + "/counter"
        numbers = [each.append_counted(path) for _ in range(200) for each in (one, two)]
        child = os.fork()
        numbers += [one.append_counted(path) for _ in range(200)]
        os.write(1, b"".join(b"%d\\n" % number for number in numbers[400 if not child else 0:]))
        if not child: os._exit(0)
        os.waitpid(child, 0)
    """
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(8)
    ]
    said = b"".join(process.communicate(timeout=60)[0] for process in running)
    numbers = [int(line) for line in said.split()]
    assert sorted(numbers) == list(range(1, 8 * 800 + 1))
    assert (home / "counter").stat().st_size == 8 * 800


def test_a_state_directory_that_cannot_be_is_no_reason_not_to_run(home: Path) -> None:
    home.write_text("in the way")
    with nacre.Tool("harness") as tool:
        assert tool.call({"command": "echo hi"}).details["stdout"] == "hi\n"
        assert tool.call({"command": "seq 1000000"}).details["stdout"].endswith("... (truncated)")
    with nacre.Tool("pi") as tool:
        assert tool.call({"command": "cat artifact://1"}).is_error


def test_a_journal_with_half_a_line_is_still_read(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "echo one"})
        (file,) = (home / "journal").glob("*/*.jsonl")
        with file.open("ab") as torn:
            torn.write(b'{"type":"ended","run":2,"ti')
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "echo two"})
    run = stored_run.find_run(2, os.fsencode(tmp_path))
    assert run.open().read() == b"two\n"


def test_output_that_cannot_be_saved_at_the_end_is_said(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / "runs").write_text("in the way")
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        assert tool.call({"command": "seq 10000"}).details["exitCode"] == 0
    _, ended = lines(home)
    assert ended["output"]["problem"] == "the output could not be saved: Not a directory"
    done = run_nacre_bytes("read", "1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"the output of r1 was not kept: the output could not be saved" in done.stderr


# Reading of stored output


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Make three runs: small output, large output, and output with separate stderr."""
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        tool.call({"command": "printf 'a\\nb\\nc'"})
        tool.call({"command": "seq 200000"})
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "echo out; echo err >&2"})
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1"], "a\nb\nc"),
        (["r1"], "a\nb\nc"),
        (["artifact://1"], "a\nb\nc"),
        (["1", "--from", "2"], "b\nc"),
        (["1", "--to", "1"], "a\n"),
        (["1", "--from", "9"], ""),
        (["1", "--lines", "2"], "b\nc"),
        (["1", "--lines", "0"], ""),
        (["1", "--grep", "[bc]"], "2:b\n3:c\n"),
        (["1", "--grep", "b", "--context", "1"], "1-a\n2:b\n3-c\n"),
        (["1", "--grep", "x"], ""),
        (["2", "--from", "150000", "--to", "150001"], "150000\n150001\n"),
        (["2", "--lines", "1"], "200000\n"),
        (["2", "--grep", "^1999(98|99)$"], "199998:199998\n199999:199999\n"),
        (["2", "--grep", "^(5|9)$", "--context", "1"], "4-4\n5:5\n6-6\n--\n8-8\n9:9\n10-10\n"),
        (["3"], "out\n"),
        (["3", "--errors"], "err\n"),
    ],
)
def test_reading_by_line_and_by_grep(stored: Path, words: list[str], said: str) -> None:
    done = run_nacre_bytes("read", *words, cwd=stored)
    assert (done.returncode, done.stderr.decode(), done.stdout.decode()) == (0, "", said)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["99"], 1, "there is no run r99 in this workspace ("),
        (["seventeen"], 1, "'seventeen' is not a run id; write 17"),
        (["1", "--errors"], 1, "r1 has stderr merged into its output; read the output"),
        (["1", "--grep", "("], 2, "--grep ( is not a regular expression"),
        (["1", "--grep", "a", "--lines", "1"], 2, "--lines and --grep exclude each other"),
        (["1", "--from", "0"], 2, "line numbers start at 1"),
        (["1", "--context", "2"], 2, "--context needs --grep"),
        (["9" * 5000], 1, "is not a run id; write 17"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(
    stored: Path, words: list[str], code: int, said: str
) -> None:
    done = run_nacre_bytes("read", *words, cwd=stored)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_a_run_of_another_workspace_is_not_found(stored: Path) -> None:
    other = stored / "other"
    (other / ".git").mkdir(parents=True)
    for run in ("1", "2"):
        done = run_nacre_bytes("read", run, cwd=other)
        assert (done.returncode, done.stdout) == (1, b"")
        with nacre.Tool("pi", cwd=other) as tool:
            reply = tool.call({"command": f"cat artifact://{run}"})
            assert f"there is no run r{run} in this workspace" in reply.text


def test_a_run_under_way_can_be_read_as_far_as_it_is_written(tmp_path: Path) -> None:
    token = nacre.CancelToken()
    found: list[bytes] = []

    def heard(event: nacre.Event) -> None:
        if isinstance(event, nacre.Chunk) and b"200000" in event.data:
            output = tmp_path / "state/runs/r1/output"
            eventually(lambda: output.exists() and output.stat().st_size)
            run = stored_run.find_run(1, os.fsencode(tmp_path))
            with run.open() as source:
                part = output_range.locate(source, Between(first=1, last=2))
                found.extend(output_range.read_range(source, *part))
            token.cancel()

    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        tool.call({"command": "seq 200000; sleep 60"}, listen=heard, cancel=token)
    assert found == [b"1\n2\n"]


def test_a_run_whose_process_was_killed_says_so(home: Path, tmp_path: Path) -> None:
    code = """if True:
        import os, signal, nacre
        def heard(event):
            if isinstance(event, nacre.Chunk): os.kill(os.getpid(), signal.SIGKILL)
        nacre.Tool("harness").call({"command": "echo hi; sleep 0.3"}, listen=heard)
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=60)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(NoSuchRun, match="r1 was lost with the process that ran it"):
        stored_run.find_run(1, os.fsencode(tmp_path)).open()
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "echo next"})
    assert [line["run"] for line in lines(home)] == [1, 2, 2]


TEXT = st.lists(st.sampled_from([b"", b"a", b"b", b"abc", b"x" * 50]), max_size=12).flatmap(
    lambda each: st.booleans().map(lambda ended: b"\n".join(each) + (b"\n" if ended else b""))
)


def whole_lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


@given(TEXT, st.integers(1, 15), st.none() | st.integers(1, 15), st.integers(1, 7))
def test_ranges_of_lines(data: bytes, first: int, last: int | None, block: int) -> None:
    wanted = whole_lines(data)[first - 1 : last]
    if last is not None and last < first:
        wanted = []
    assert b"".join(_blocks(block, data, Between(first=first, last=last))) == b"".join(wanted)


@given(TEXT, st.integers(0, 15), st.integers(1, 7))
def test_the_last_lines(data: bytes, count: int, block: int) -> None:
    wanted = whole_lines(data)[-count:] if count else []
    assert b"".join(_blocks(block, data, Last(lines=count))) == b"".join(wanted)


def _blocks(size: int, data: bytes, part: Between | Last) -> list[bytes]:
    """Read a part of the output in blocks of `size` bytes."""
    usual, output_range.BLOCK_SIZE = output_range.BLOCK_SIZE, size  # type: ignore[misc]
    try:
        source = io.BytesIO(data)
        return [*output_range.read_range(source, *output_range.locate(source, part))]
    finally:
        output_range.BLOCK_SIZE = usual  # type: ignore[misc]


def test_one_endless_line_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(1 << 28)
    code = f"""if True:
        import re
        from nacre.text import search
        from nacre.model.requests import Between
        from nacre.store.output_range import locate, read_range
        size = 0
        with open({str(path)!r}, "rb", buffering=0) as source:
            for data in read_range(source, *locate(source, Between())): size += len(data)
        with open({str(path)!r}, "rb", buffering=0) as source:
            found = [f for f in search.grep(source, re.compile("x")) if not isinstance(f, int)]
        (most,) = re.findall(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
        print(size, found, int(most) < 60_000)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert said.stdout == "268435456 [] True\n"


# Cleanup of old runs


def test_what_is_old_is_swept_and_what_lives_stays(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        for _ in range(3):
            tool.call({"command": "seq 10000"})
    moment = time.time()
    assert cleanup.clean_up(StoreLimits(days=1), now=moment + DAY / 2) == 0
    with (home / "runs/r2/output").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert (
            cleanup.clean_up(StoreLimits(days=1), now=moment + 2 * DAY) == 3
        )  # deleted: two runs and one journal file
        assert os.listdir(home / "runs") == ["r2"]
    assert (
        cleanup.clean_up(StoreLimits(days=1), now=moment + 2 * DAY) == 2
    )  # deleted: the last run and an empty journal directory
    assert os.listdir(home / "journal") == []
    assert (home / "counter").stat().st_size == 3
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "echo next"})
    assert stored_run.find_run(4, os.fsencode(tmp_path)).open().read() == b"next\n"
    with pytest.raises(NoSuchRun):
        stored_run.find_run(3, os.fsencode(tmp_path))


def test_a_run_under_way_is_not_swept(home: Path, tmp_path: Path) -> None:
    token = nacre.CancelToken()
    found: list[object] = []

    def heard(event: nacre.Event) -> None:
        if isinstance(event, nacre.Chunk) and not found:
            output = home / "runs/r1/output"
            # The writer locks the file before it writes the first byte.
            eventually(lambda: output.exists() and output.stat().st_size)
            found.append(cleanup.clean_up(StoreLimits(days=1), now=time.time() + 2 * DAY))
            found.append(sorted(os.listdir(home / "runs/r1")))
            token.cancel()

    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        tool.call({"command": "seq 100000; sleep 60"}, listen=heard, cancel=token)
    assert found == [0, ["output", "plan"]]


def test_of_too_much_the_oldest_go(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        for _ in range(4):
            tool.call({"command": "seq 100000"})
    moment = time.time()
    for number in range(1, 5):
        for path in (home / f"runs/r{number}").iterdir():
            os.utime(path, (moment, moment - 1000 + number))
    assert cleanup.clean_up(StoreLimits(size=1_500_000), now=moment + 3 * 3600) == 2
    assert sorted(os.listdir(home / "runs")) == ["r3", "r4"]


def test_what_was_written_just_now_is_never_swept(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "seq 100000"})
    assert cleanup.clean_up(StoreLimits(size=0)) == 0
    assert os.listdir(home / "runs") == ["r1"]


@pytest.mark.alone
def test_a_backlog_is_swept_a_little_at_a_time(home: Path, tmp_path: Path) -> None:
    """A cleanup runs during a call, in the thread of the host."""
    old = time.time() - 20 * DAY
    for number in range(2, 2002):
        place = home / f"runs/r{number}"
        place.mkdir(parents=True)
        (place / "output").write_bytes(b"x")
        os.utime(place / "output", (old, old))
    with (home / "counter").open("ab") as counter:
        counter.write(b"." * (64 * 40))
    begin = time.monotonic()
    assert 0 < cleanup.clean_up(StoreLimits(), seconds=0.01) < 2000
    assert time.monotonic() - begin < 5
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "echo hi"})
    assert not (home / "swept").exists()  # the cleanup is not complete
    assert os.listdir(home / "runs")
    cleanup.clean_up(StoreLimits())
    assert os.listdir(home / "runs") == []


def test_a_counter_that_was_removed_does_not_begin_again(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "seq 10000"})
        tool.call({"command": "echo two"})
    (home / "counter").unlink()
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        assert tool.call({"command": "seq 20000"}).run == "r1002"
    with stored_run.find_run(1, os.fsencode(tmp_path)).open() as source:
        assert source.read().endswith(b"\n10000\n")


def test_a_workspace_stays_what_it_was_for_a_tool(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with nacre.Tool("phoenix", cwd=tmp_path / "sub") as tool:
        first = tool.call({"command": "seq 100000"})
        tool.call({"command": "git init -q .."})
        assert tool.call({"command": f"tail -1 artifact://{str(first.run)[1:]}"}).text == "100000\n"


def test_many_may_want_the_same_small_artifact_at_once(tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        for _ in range(20):
            run = str(tool.call({"command": "echo small"}).run)
            with ThreadPoolExecutor(8) as pool:
                command = {"command": f"cat artifact://{run[1:]}"}
                assert [each.text for each in pool.map(tool.call, [command] * 8)] == ["small\n"] * 8


def test_a_link_too_deep_to_be_made_is_a_sentence_and_the_next_call_works(tmp_path: Path) -> None:
    with nacre.Tool("pi", cwd=tmp_path) as tool:
        reply = tool.call({"command": f"cat local://{'b/' * 3000}c"})
        assert reply.is_error
        assert "is more than 64 directories deep; choose a shorter path" in reply.text
        assert tool.call({"command": "echo next"}).text.startswith("next\n")


def test_a_relative_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NACRE_HOME", "state")
    (tmp_path / "sub").mkdir()
    with nacre.Tool("pi") as tool:
        tool.call({"command": "seq 30000"})
        assert tool.call({"command": "wc -l < artifact://1", "cwd": "sub"}).text[:5] == "30000"


def test_a_signal_handler_may_close_a_file_in_the_middle_of_a_line(tmp_path: Path) -> None:
    code = f"""if True:
        import os, signal
        from nacre.store import append_file
        file = append_file.AppendFile(lines=True)
        signal.signal(signal.SIGALRM, lambda *_: file.close())
        class Slow:
            def __getattr__(self, name): return getattr(os, name)
            def write(self, fd, data):
                signal.raise_signal(signal.SIGALRM)
                return os.write(fd, data)
        append_file.os = Slow()
        file.append({str(tmp_path / "log")!r}, b"line\\n")
        print(open({str(tmp_path / "log")!r}).read(), file._fd)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr) == ("line\n None\n", "")


@pytest.mark.parametrize("rest", ["later", "never"])
def test_a_line_of_another_process_is_ended_only_if_that_process_does_not(
    tmp_path: Path, rest: str
) -> None:
    log = tmp_path / "log"
    with log.open("ab", buffering=0) as other:
        log.chmod(0o600)
        other.write(b"half ")
        if rest == "later":
            timer = threading.Timer(0.002, other.write, (b"and half\n",))
            timer.start()
        file = AppendFile(lines=True)
        file.append(str(log), b"line\n")
        file.close()
        if rest == "later":
            timer.join()
    whole = b"half and half\n" if rest == "later" else b"half \n"
    assert log.read_bytes() == whole + b"line\n"


def test_a_tool_sweeps_now_and_then(home: Path, tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "seq 100000"})
    old = time.time() - 20 * DAY
    for path in (home / "runs/r1").iterdir():
        os.utime(path, (old, old))
    with (home / "counter").open("ab") as counter:
        counter.write(b"." * 63)
    os.utime(home / "swept", (old, old))
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        tool.call({"command": "echo r65"})
    assert not (home / "runs/r1").exists()


# Append-only files


def test_a_full_file_is_put_aside_and_no_line_is_lost(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    code = f"""if True:
        import os, sys
        from nacre.store.append_file import AppendFile
        file = AppendFile(max_bytes=2000)
        for number in range(300): file.append({path!r}, b"%d %d\\n" % (int(sys.argv[1]), number))
    """
    running = [subprocess.Popen([sys.executable, "-c", code, str(i)]) for i in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    names = sorted(each.name for each in tmp_path.iterdir() if each.name.startswith("log"))
    assert names[:2] == ["log", "log.1"]
    found = [
        tuple(map(int, line.split()))
        for name in names
        for line in (tmp_path / name).read_text().splitlines()
    ]
    assert len(names) <= KEPT_ROTATIONS + 1
    assert sorted(found) == [(i, number) for i in range(4) for number in range(300)]


def test_only_four_old_files_are_kept(tmp_path: Path) -> None:
    file = AppendFile(max_bytes=10)
    for number in range(100):
        file.append(str(tmp_path / "log"), b"a line of text %d\n" % number)
    file.close()
    kept = sorted(each.name for each in tmp_path.iterdir() if each.name.startswith("log"))
    assert kept == ["log", "log.1", "log.2", "log.3", "log.4"]
    assert (tmp_path / "log").read_bytes() == b"a line of text 99\n"


def test_a_file_that_each_process_appends_to_once_is_renamed_when_it_is_full(
    tmp_path: Path,
) -> None:
    for number in range(5):
        file = AppendFile(lines=True, max_bytes=10)
        file.append(str(tmp_path / "log"), b"a line of text %d\n" % number)
        file.close()
    assert (tmp_path / "log").read_bytes() == b"a line of text 4\n"
    assert (tmp_path / "log.1").read_bytes() == b"a line of text 3\n"


def test_the_last_position_of_a_run_counts(home: Path) -> None:
    assert position_log.read_position("r1") is None
    for byte in (5, 7):
        position_log.write_positions(
            {"r1": ReadPosition(byte, False), "r11": ReadPosition(9, True)}
        )
    assert position_log.read_position("r1") == ReadPosition(7, False)
    assert position_log.read_position("r11") == ReadPosition(9, True)
    (home / "positions").write_bytes(b"r1 7 live\nr1 x\n")
    assert position_log.read_position("r1") is None


def test_a_symbolic_link_in_the_way_is_not_followed(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o700)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in ("counter", "audit.jsonl"):
        (home / name).symlink_to(precious)
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        assert tool.call({"command": "echo hi"}).details["stdout"] == "hi\n"
        assert tool.audit_problem is not None
    assert precious.read_text() == "mine"


def test_a_key_says_which_workspace(tmp_path: Path) -> None:
    assert journal.workspace_key(b"/a") != journal.workspace_key(b"/b")
    assert re.fullmatch("[0-9a-f]{16}", journal.workspace_key(os.fsencode(tmp_path)))
