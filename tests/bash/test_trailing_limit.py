"""Tests of a `| head` or `| tail` at the end of a script.

nacre removes some of these stages and cuts the output itself. Other stages stay in the pipeline.
"""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.bash.trailing_limit import TrailingLimit, find_trailing_limit


@pytest.mark.parametrize(
    ("script", "rest", "head", "tail"),
    [
        ("make | tail -n 5", "make", None, 5),
        ("make | tail -5", "make", None, 5),
        ("make | head -n 5", "make", 5, None),
        ("make 2>&1 | head -50", "make 2>&1", 50, None),
        ("make|tail -5", "make", None, 5),
        ("make |& tail -5", "make", None, 5),
        ("make | head -20 | tail -5", "make | head -20", None, 5),
        ("make | tail -20 | head -5", "make | tail -20", 5, None),
        ("make | head -3 | head -5", "make | head -3", 5, None),
        ("a | b | tail -1", "a | b", None, 1),
        ("make | tail -5 # the end", "make # the end", None, 5),
        ("make | 'tail' -n '5'", "make", None, 5),
        ("cat <<E | head -1\na\nb\nE", "cat <<E\na\nb\nE", 1, None),
        ("(a; b) | tail -2", "(a; b)", None, 2),
        ("for i in 1 2; do echo $i; done | tail -1", "for i in 1 2; do echo $i; done", None, 1),
    ],
)
def test_lifted(script: str, rest: str, head: int | None, tail: int | None) -> None:
    found = find_trailing_limit(script.encode())
    assert found is not None
    assert (found.script.decode(), found.head, found.tail) == (rest, head, tail)


@pytest.mark.parametrize(
    "script",
    [
        "make",
        "head -5 f",
        "make | tail",
        "make | tail -f",
        "make | tail -n +5",
        "make | tail -n -5",
        "make | tail -c 5",
        "make | tail -n 5 f",
        "make | tail -n 5 > f",
        "make | tail -n $N",
        "make | tail -5 &",
        "! make | tail -5",
        "a; make | tail -5",
        "a && make | tail -5",
        "make | tail -5 && b",
        "make | tail -5; b",
        "make | tail -5 | wc",
        "echo 'make | tail -5'",
        'echo "$(make | tail -5)"',
        "make | ( tail -5 )",
        "make | sudo tail -5",
        "if | tail -5",
    ],
)
def test_not_lifted(script: str) -> None:
    assert find_trailing_limit(script.encode()) is None


@given(
    st.sampled_from(
        ["seq 9", "(seq 3; seq 4)", "printf 'a\\nb\\nc'", "cat <<E\n1\n2\n3\nE", "true"]
    ),
    st.lists(
        st.tuples(st.sampled_from(["head", "tail"]), st.integers(0, 9)), min_size=1, max_size=3
    ),
)
def test_the_same_lines_come_out(command: str, stages: list[tuple[str, int]]) -> None:
    """Compare the pipeline in bash with the shorter script whose output is cut afterwards."""
    first, newline, body = command.partition("\n")
    script = "".join([first, *(f" | {name} -n {count}" for name, count in stages), newline, body])
    found = find_trailing_limit(script.encode())
    assert isinstance(found, TrailingLimit)
    lines = _bash(found.script.decode()).splitlines(keepends=True)
    lines = lines if found.head is None else lines[: found.head]
    lines = lines if found.tail is None else lines[max(0, len(lines) - found.tail) :]
    assert "".join(lines) == _bash(script)


def _bash(script: str) -> str:
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20)
    return done.stdout
