"""Tests of `is_unchanging`: a script that it accepts leaves the state of its shell unchanged."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nacre.shell_state import state as states
from nacre.shell_state.stateless_commands import is_unchanging

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "script",
    [
        "ls",
        "  git status --short  ",
        "grep -rn 'a b' src | head -5",
        "make test 2>&1 | tail -n 20",
        'echo "hello you" > out.txt && cat out.txt',
        "cat < in.txt >> out.txt 2> /dev/null",
        "ls *.py [ab]?; pwd",
        "true || false\necho done",
        "make &> log",
    ],
)
def test_plain(script: str) -> None:
    assert is_unchanging(script.encode(), None)
    assert is_unchanging(script.encode(), states.EMPTY)


@pytest.mark.parametrize(
    "script",
    [
        "",
        "x=1",
        "x=1 make",
        "cd /",
        "ls && cd /",
        "ls | while read x; do y=$x; done",
        "echo $((n++))",
        "echo ${x:=5}",
        "sleep 1 & ",
        "sleep 1 & ls",
        "ls |& cat",
        "(ls)",
        "{ ls; }",
        "if true; then ls; fi",
        "f() { ls; }",
        "exec ls",
        "ls; exit 3",
        "cat <<E\nx=1\nE",
        "echo {fd}> x",
        "ls {fd}> x",
        "exec 3> x",
        "ls >& x 3>&-",
        "time ls",
        "! ls",
        "[[ a =~ b ]]",
        "a[1]=5 ls",
        "echo `x`",
        'echo "$(x)"',
        "ls; ;",
        "ls # x",
        "printf -v x y",
        "ls ;; pwd",
        "ls &&",
        "coproc ls",
        "2>&1 cd /",
        "test -v 'BASH_VERSINFO[x=5]'",
        "-x",
        "ls; 2>f x=1",
    ],
)
def test_not_plain(script: str) -> None:
    assert not is_unchanging(script.encode(), None)


def test_what_is_plain_depends_on_the_session() -> None:
    def after(**changes: object) -> bool:
        state = msgspec.structs.replace(states.EMPTY, **changes)
        return is_unchanging(b"make | head", state)

    assert after()
    assert not after(names=(b"head",))
    assert not after(names=(b"command_not_found_handle",))
    assert not after(aliases=b"alias head='x=5;'\n")
    assert not after(traps={b"SIGUSR1": b"'x=1'"})
    assert not after(set=(*states.SET, b"errexit"))


MANY = int(os.environ.get("NACRE_PLAIN", "100"))
_PIECES = st.sampled_from(
    (
        *(
            "echo",
            "true",
            "ls",
            "x",
            "cat",
            "pwd",
            "a b",
            "'c d'",
            '"e f"',
            "*",
            "~",
            "a[1]",
            "x=5",
        ),
        *("|", "||", "&&", ";", "\n", "&", "&>", ">", ">>", "2>", "2>&1", "<", "/dev/null", "f"),
        *("$x", "`x`", "cd", "/", "{y}>f", "!", "(", ")", "{", "}", "#", "<<", "y=1", "\\", "if"),
    )
)

_ASK = "{ declare -p; declare -f; alias; set +o; shopt; dirs -l; umask; trap; echo $#; } 2>&1"
_NO_STATE = re.compile(r"declare -\S+ (_|PIPESTATUS|BASH_\w+|RANDOM|SRANDOM|EPOCH\w+)(=|$)")


@given(st.lists(_PIECES, min_size=1, max_size=8).map(" ".join))
@settings(max_examples=MANY, suppress_health_check=[HealthCheck.filter_too_much])
def test_what_is_plain_changes_nothing(script: str) -> None:
    """Compare the state of a real bash before and after the script."""
    assume(is_unchanging(script.encode(), None))
    with tempfile.TemporaryDirectory() as place:
        here, told = Path(place, "here"), Path(place, "told")
        here.mkdir()
        command = f'{_ASK} >{told}.1; eval "$1" >/dev/null 2>&1; {_ASK} >{told}.2'
        words = ["bash", "-c", command, "bash", script]
        subprocess.run(words, cwd=here, stdin=subprocess.DEVNULL, check=False)
        before, after = (Path(f"{told}.{n}").read_text().splitlines() for n in (1, 2))
    changed = {*before} ^ {*after}
    assert {line for line in changed if not _NO_STATE.match(line)} == set()
