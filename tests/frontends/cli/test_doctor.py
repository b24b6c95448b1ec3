"""Tests of `nacre doctor`, which checks what nacre can use on this machine."""

import pytest

from tests.support.command_line import run_nacre

pytestmark = pytest.mark.slow


def test_doctor_says_one_line_each() -> None:
    said = run_nacre("doctor")
    lines = said.stdout.partition("\n\n")[0].splitlines()
    assert said.returncode == 0, said.stdout
    assert {line.split()[1] for line in lines} >= {"bash", "processes", "terminals", "sandbox"}


def test_doctor_names_the_remedy_for_what_is_missing() -> None:
    said = run_nacre("doctor", NACRE_HOME="/dev/null/nope")
    assert said.returncode == 1
    assert "set NACRE_HOME to a directory that can be written" in said.stdout
