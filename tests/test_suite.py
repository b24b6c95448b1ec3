"""Tests of the test suite itself: its leak check, time limits, test order and start-up."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.helpers import eventually, named

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SECONDS = f"98766.{os.getpid():07d}"
Inner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def inner(tmp_path: Path) -> Inner:
    """Return a function that runs a test file in a separate pytest, with this suite's plugins."""

    def run(code: str, *words: str, **options: object) -> "subprocess.CompletedProcess[str]":
        place = tmp_path / "inner"
        place.mkdir(exist_ok=True)
        (place / "test_inner.py").write_text(code)
        ours = [f"tests.support.{each}" for each in ("startup", "limits", "order", "leaks")]
        plugins = [f"-p{each}" for each in (*ours, "xdist.plugin")]
        command = [sys.executable, "-m", "pytest", *plugins, "-c", os.devnull, *words]
        command += ["--rootdir", str(place), "-p", "no:cacheprovider", str(place)]
        command += ["--basetemp", str(tmp_path / "base")]
        # Loading all installed plugins would take as long as the rest of the inner pytest run.
        env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        given = {"capture_output": True, "text": True, "timeout": 50, "env": env, **options}
        return subprocess.run(command, cwd=ROOT, **given)  # type: ignore[call-overload, no-any-return]

    return run


LEAKS = {
    "descriptors": "import os\ndef test_it(): os.open('/dev/null', os.O_RDONLY)",
    "threads": (
        "import threading, time\n"
        "def test_it(): threading.Thread(target=time.sleep, args=(10,), daemon=True).start()"
    ),
    "processes": (
        f"import subprocess\nkept = []\n"
        f"def test_it(): kept.append(subprocess.Popen(['sleep', '{SECONDS}']))"
    ),
    "processes that went away": (
        f"import subprocess\n"
        f"def test_it(): subprocess.run('env -i setsid sleep {SECONDS} &', shell=True)"
    ),
    "runs in the warden": (
        "import nacre, pytest\n"
        "@pytest.mark.slow\n"
        "def test_it():\n"
        f"    nacre.Tool().call({{'command': 'sleep {SECONDS}', 'wait': 0}})"
    ),
    "files": "import tempfile\ndef test_it(): open(f'{tempfile.gettempdir()}/x', 'w').close()",
}


@pytest.mark.parametrize("kind", LEAKS)
def test_what_a_test_leaves_fails_it_and_is_ended(kind: str, inner: Inner) -> None:
    done = inner(LEAKS[kind])
    assert f"this test left {kind.removesuffix(' that went away')} behind" in done.stdout
    assert "1 passed, 1 error" in done.stdout
    eventually(lambda: not named(SECONDS))


def test_what_leaves_nothing_passes(inner: Inner) -> None:
    done = inner("import nacre\ndef test_it(): assert nacre.run('echo hi').exit_code == 0")
    assert "1 passed" in done.stdout
    assert done.returncode == 0


STUCK = {
    "sleeps": "import time\n    time.sleep(60)",
    "waits for a process": "import subprocess\n    with subprocess.Popen(['sleep', '15']): 1 / 0",
    "waits for a command": f"import nacre\n    nacre.run('sleep {SECONDS}')",
    "waits for a thread": (
        "import threading, time\n"
        "    thread = threading.Thread(target=time.sleep, args=(3,))\n"
        "    thread.start(); thread.join()"
    ),
    "waits in an event loop": "import asyncio\n    asyncio.run(asyncio.sleep(60))",
}


@pytest.mark.parametrize("kind", STUCK)
def test_a_limit_fails_one_test_and_the_next_one_runs(kind: str, inner: Inner) -> None:
    code = f"""
import pytest
@pytest.mark.limit(1)
def test_stuck():
    {STUCK[kind]}
def test_next(): pass
"""
    done = inner(code)
    assert "this test took more than its limit of 1 s" in done.stdout
    assert re.search(r"test_inner.py:[5-9]: ", done.stdout)  # a line of the traceback
    assert "1 failed, 1 passed" in done.stdout
    assert named(SECONDS) == []


def test_where_python_does_not_run_any_more_a_worker_ends_and_another_goes_on(inner: Inner) -> None:
    code = """
import ctypes, pytest, signal
from tests.support import limits
limits._WATCHDOG = 1
@pytest.mark.limit(1)
def test_stuck():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ctypes.PyDLL(None).pause()  # it keeps the interpreter's lock
def test_next(): pass
"""
    done = inner(code, "-n", "1")
    assert "crashed while running 'test_inner.py::test_stuck'" in done.stdout
    assert "in test_stuck" in done.stderr
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.parametrize("closed", [(), (0,), (0, 1, 2)])
def test_however_it_is_started_commands_start_afresh(
    closed: tuple[int, ...], inner: Inner, tmp_path: Path
) -> None:
    code = """
import os, signal, subprocess
def test_it():
    said = subprocess.run(["grep", "^Sig[BI]", "/proc/self/status"], stdout=subprocess.PIPE)
    blocked, ignored = (int(line.split()[1], 16) for line in said.stdout.splitlines())
    reserved = 3 << 31  # 32 and 33 are of the C library; make leaves one of them ignored
    assert (blocked, ignored & ~reserved) == (0, 0)
    for number in range(3): os.fstat(number)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""

    def start() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGCHLD})
        for descriptor in closed:
            os.close(descriptor)

    report = tmp_path / "report"  # a file, because stdout and stderr may be closed
    done = inner(code, f"--junit-xml={report}", preexec_fn=start)
    assert done.returncode == 0, report.read_text()


def test_a_seed_is_an_order(inner: Inner) -> None:
    code = "import pytest\n@pytest.mark.parametrize('n', range(30))\ndef test_it(n): pass"
    words = ("-v", "--order-seed")
    orders = [
        [line.split()[0] for line in inner(code, *words, seed).stdout.splitlines() if "[" in line]
        for seed in ("1", "1", "2")
    ]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_a_test_that_is_to_be_alone_is(inner: Inner, tmp_path: Path) -> None:
    code = f"""
import pathlib, pytest, time
place = pathlib.Path({str(tmp_path)!r}) / "marks"
place.mkdir(exist_ok=True)
@pytest.mark.alone
@pytest.mark.parametrize("n", range(3))
def test_alone(n):
    assert list(place.iterdir()) == []
    time.sleep(0.2)
    assert list(place.iterdir()) == []
@pytest.mark.parametrize("n", range(12))
def test_other(n):
    mark = place / str(n)
    mark.touch()
    time.sleep(0.1)
    mark.unlink()
"""
    done = inner(code, "-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder")
    assert "15 passed" in done.stdout, done.stdout
