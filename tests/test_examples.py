"""Tests that run the programs in examples/."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_an_agent_of_five_calls_that_never_sleeps(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("agent", EXAMPLES / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    agent = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(agent)
    assert agent.main() == 5
    said = capsys.readouterr().out
    assert "sleep" not in said
    assert "AssertionError: b'41\\n' != b'42\\n'" in said
    assert "Deploy although 1 test fails? [y/N] \n[r" in said
    assert said.endswith("5 calls, nothing is left running\n")


@pytest.mark.parametrize("name", ["agent", "with_mcp", "with_rpc"])
def test_an_example_is_a_program(name: str) -> None:
    """Run the examples that need no agent SDK; `make test-adapters` runs the others."""
    path = EXAMPLES / f"{name}.py"
    said = subprocess.run([sys.executable, str(path)], capture_output=True, timeout=60)
    assert said.returncode == 0, said


def test_each_example_says_what_it_shows() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text()))
