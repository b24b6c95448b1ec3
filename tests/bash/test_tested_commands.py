"""Tests of the flag `tested`: whether a script tests the exit status of a command."""

import pytest

from nacre.bash.analyze import analyze


@pytest.mark.parametrize(
    ("script", "tested"),
    [
        ("grep x f", False),
        ("true; grep x f", False),
        ("true && grep x f", False),
        ("grep x f && true", True),
        ("grep x f || true", True),
        ("grep x f && true || true", True),
        ("if grep x f; then true; fi", True),
        ("if true; then grep x f; fi", False),
        ("if true; then true; elif grep x f; then true; fi", True),
        ("if true; then true; else grep x f; fi", False),
        ("! grep x f", True),
        ("!  grep x f", True),
        ("! time grep x f", True),
        ("! time -p grep x f", True),
        ("! \\\ngrep x f", True),
        ("! { grep x f; }", True),
        ("! (grep x f)", True),
        ("(! grep x f)", True),
        ("true; ! grep x f", True),
        ("! bash -c 'grep x f'", True),
        ("echo !; grep x f", False),
        ("echo a! ; grep x f", False),
        ("echo ! grep x f; grep x f", False),
        ("{ grep x f; } && true", True),
        ("case a in a) grep x f;; esac", False),
    ],
)
def test_tested(script: str, tested: bool) -> None:
    found = [each for each in analyze(script.encode()).commands if each.name == b"grep"]
    assert [each.tested for each in found] == [tested]
