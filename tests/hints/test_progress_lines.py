"""Tests of `drop_progress`: progress lines of known programs are dropped, errors are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.bash.analyze import analyze
from nacre.hints.progress_lines import drop_progress


def short(command: str, *lines: str) -> str | None:
    return drop_progress(analyze(command.encode()), "".join(f"{line}\n" for line in lines))


APT = [
    "Reading package lists...",
    "Building dependency tree...",
    "Get:1 http://deb x [1 kB]",
    "Selecting previously unselected package a.",
    "Unpacking a (1) ...",
    "Setting up a (1) ...",
]


@pytest.mark.parametrize(
    ("command", "lines", "said"),
    [
        ("apt-get install -y a", [*APT, "E: done"], "[6 lines of progress]\nE: done\n"),
        ("sudo apt-get install -y a", [*APT, "ok"], "[6 lines of progress]\nok\n"),
        ("cd x && apt install a", ["first", *APT], "first\n[6 lines of progress]\n"),
        (
            "cargo build",
            [*["   Compiling a v1"] * 5, "warning: unused", "    Finished dev"],
            "[5 lines of progress]\nwarning: unused\n    Finished dev\n",
        ),
        (
            "pytest -v",
            [*[f"t.py::test_{i} PASSED [ {i}%]" for i in range(6)], "t.py::test_7 FAILED [9%]"],
            "[6 lines of progress]\nt.py::test_7 FAILED [9%]\n",
        ),
        (
            "python -m pytest",
            [*["tests/a.py ........ [ 10%]"] * 5, "tests/b.py ...F [ 20%]"],
            "[5 lines of progress]\ntests/b.py ...F [ 20%]\n",
        ),
        (
            "git clone x",
            [*["remote: Counting objects: 5"] * 3, *["Receiving objects: 5"] * 3, "done"],
            "[6 lines of progress]\ndone\n",
        ),
        (
            "pip install x",
            [*["Collecting a"] * 5, "  error: subprocess failed", "Collecting b"],
            "[5 lines of progress]\n  error: subprocess failed\n[1 line of progress]\n",
        ),
        (
            "pip install x",
            [*["Collecting a"] * 5, "Collecting b: could not find a version"],
            "[5 lines of progress]\nCollecting b: could not find a version\n",
        ),
        ("pip install x", ["Collecting a"] * 4, None),
        ("pip --version", ["Collecting a"] * 9, None),
        ("cat log", ["Collecting a"] * 9, None),
        ("echo pip install", ["Collecting a"] * 9, None),
        ("pip install x", ["Collecting a failed"] * 9, None),
        ("pip install x && ./bench", ["   1.5 ms for case 1"] * 9, None),
        ("cargo run", ["Checking the weather"] * 9, None),
    ],
)
def test_what_goes_and_what_stays(command: str, lines: list[str], said: str | None) -> None:
    assert short(command, *lines) == said


@given(st.lists(st.sampled_from(["Collecting a", "ERROR: x", "plain", "  Downloading b", ""])))
def test_every_line_is_there_or_counted(lines: list[str]) -> None:
    said = short("pip install x", *lines)
    if said is None:
        return
    counted = sum(
        int(line[1:].split()[0]) if line.startswith("[") else 1 for line in said.splitlines()
    )
    assert counted == len(lines)
    assert said.count("ERROR: x") == lines.count("ERROR: x")
    assert said.count("plain") == lines.count("plain")
