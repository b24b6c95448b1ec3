"""Tests of the `nacre` program: the start of each subcommand, and closed descriptors."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import nacre
from tests.support.command_line import PROGRAM, run_nacre

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("module", [False, True])
def test_the_program_starts_by_both_of_its_names(module: bool) -> None:
    words = [sys.executable, "-m", "nacre"] if module else [PROGRAM]
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"nacre {nacre.__version__}\n"


STARTS: dict[str, tuple[str, str]] = {  # arguments of each subcommand, and a part of its output
    "run": ("run -- echo hi", "hi\n"),
    "call": ("call --contract harness '{}'", '"error":"command is required"'),
    "schema": ("schema", '"name": "bash"'),
    "ps": ("ps", "COMMAND"),
    "read": ("read 1", "first\n"),
    "wait": ("wait 1; echo code $?", "code 0\n"),
    "write": ("write 1 x", "r1 has ended"),
    "kill": ("kill 1", "r1"),
    "attach": ("attach 1 </dev/null", "first\n"),
    "sessions": ("sessions", "no sessions in this workspace"),
    "log": ("log", "echo first"),
    "explain": ("explain ls", "would run"),
    "mcp": ("mcp </dev/null; echo code $?", "code 0\n"),
    "rpc": ('rpc <<< \'{"id": 1, "type": "ping"}\'', '"id":1'),
    "warden": ("warden --help", "usage: nacre warden"),
    "doctor": ("doctor", "bash"),
}


@pytest.mark.parametrize("command", STARTS)
def test_each_command_in_a_real_start_of_the_program(command: str, tmp_path: Path) -> None:
    """Start each subcommand in a new interpreter. Other tests run subcommands in forks of one
    interpreter, which has already loaded more modules than the subcommand imports."""
    run_nacre("run", "--", "echo first", cwd=tmp_path)
    words, expected = STARTS[command]
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1; {shlex.quote(PROGRAM)} {words}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert expected in done.stdout
    assert "Traceback" not in done.stdout


def test_no_command_is_missing_there() -> None:
    commands = re.findall(r"^    (\w+) ", run_nacre("--help").stdout, re.MULTILINE)
    assert set(STARTS) == set(commands)


def test_help_and_version() -> None:
    assert run_nacre("--version").stdout.startswith("nacre ")
    assert run_nacre().returncode == 2
    assert "doctor" in run_nacre("--help").stdout


@pytest.mark.parametrize(
    ("command", "code", "stdout"),
    [
        ("{} run 'echo hi; exit 7' 2>&-", 7, "hi\n"),
        ("{} run 'echo hi; exit 7' >&-", 7, ""),
        ("{} run 'echo hi; exit 7' <&- >&- 2>&-", 7, ""),
        ("{} run 'echo hi' >/dev/full", 1, ""),
        ("{} run 'echo hi; sleep 60' >/dev/full", 1, ""),
        ("{} run --json 'echo hi' >/dev/full", 1, ""),
        ("{} run 'echo hi; sleep 0.3 & exit 5' 2>/dev/full", 5, "hi\n"),
        ("{} run --timeout 0.2 'sleep 5' 2>/dev/full", 124, ""),
        ('{} call \'{{"command": "echo hi"}}\' >&-', 0, ""),
        ('{} call \'{{"command": "echo hi"}}\' >/dev/full', 1, ""),
        ("{} call - <&-", 2, ""),
        ("{} schema >/dev/full", 1, ""),
    ],
)
def test_closed_or_full_standard_descriptors(command: str, code: int, stdout: str) -> None:
    words = ["bash", "-c", command.format(shlex.quote(PROGRAM))]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout) == (code, stdout)
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("words", ["run -- true", "rpc </dev/null"])
def test_too_few_descriptors_are_a_sentence(words: str) -> None:
    script = f"ulimit -n 7; {shlex.quote(PROGRAM)} {words}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    assert "nacre: this process has no file descriptors left (limit 7); raise" in done.stderr
    assert "Traceback" not in done.stderr
