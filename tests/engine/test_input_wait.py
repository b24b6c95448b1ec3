"""Tests with real programs: nacre detects from kernel data which of them wait for input."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nacre.engine.input_wait import InputWaitDetector, Question
from nacre.eventloop import EventLoop
from tests.support import programs, wardens

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_there_are_enough_programs_on_both_sides() -> None:
    """Count programs that every machine has, and programs that are installed on this machine."""
    everywhere = [
        each for each in programs.PROGRAMS if each.needs in ("bash", "cat", "sleep", "dd")
    ]
    assert sum(each.asks for each in everywhere) >= 15
    assert len(programs.select()) >= 60
    missing = {each.needs for each in programs.PROGRAMS if not each.there}
    if missing:
        print(f"not tried, since they are not here: {', '.join(sorted(missing))}")


def test_a_question_is_one_when_it_is_seen_twice() -> None:
    loop, told = EventLoop(), []
    seen: list[Question | None] = [(1, 0), None, (1, 0), (2, 0), (2, 3), (2, 3)]
    asking = InputWaitDetector(loop, lambda: seen.pop(0), lambda: told.append(len(seen)))
    asking.begin()
    while not told:
        loop.step()
    assert told == [0]
    loop.close()


def test_each_is_taken_for_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    wrong = [each for each in programs.run_all(programs.select(), 20) if not each.right]
    assert [(each.program.command, each.state) for each in wrong] == []


_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]


@pytest.fixture
def public() -> Iterator[Path]:
    """Create a directory that other users can enter. It is not inside pytest's directory, because
    each start of pytest denies other users access to that directory."""
    with tempfile.TemporaryDirectory(prefix="nacre-tests-", dir="/tmp") as made:
        place = Path(made)
        place.chmod(0o755)
        yield place


@pytest.mark.limit(150)
def test_another_user_sees_the_same(public: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("THIS DID NOT RUN: it needs root, to be somebody else; the test above was not")
    if shutil.which("setpriv") is None:
        pytest.skip("THIS DID NOT RUN: there is no setpriv here (util-linux)")
    place = public / "other"
    place.mkdir()
    os.chown(place, 65534, 65534)
    packages = Path(msgspec.__file__).parent.parent
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src", packages))),
        "NACRE_HOME": str(place / "state"),
        "HOME": str(place),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    python = next((each for each in _PYTHONS if _can_be_run(each, env)), None)
    if python is None:
        pytest.skip("THIS DID NOT RUN: another user may not run this Python, or read this checkout")
    said = subprocess.run(
        [*_NOBODY, python, "-m", "tests.support.programs", "3", "16"],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    wardens.end(public)
    assert "recall 1.00" in said.stdout, said
    assert "precision 1.00" in said.stdout, said


_PYTHONS = (sys.executable, "/usr/bin/python3.11", "/usr/bin/python3")


def _can_be_run(python: str, env: dict[str, str]) -> bool:
    """Return whether the user `nobody` can run this Python with nacre, also in a process that was
    never root."""
    words = [
        *_NOBODY,
        "/bin/sh",
        "-c",
        'exec "$0" -c "import nacre.tool, tests.support.programs"',
        python,
    ]
    return subprocess.run(words, env=env, cwd="/", capture_output=True).returncode == 0
