"""Tests of `nacre schema`: tool definitions in the format of each model provider."""

import json

import pytest

from tests.support.command_line import run_nacre

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("format", ["anthropic", "openai", "mcp"])
def test_schema(format: str) -> None:
    said = run_nacre("schema", "--format", format)
    tools = json.loads(said.stdout)
    names = [tool.get("name") or tool["function"]["name"] for tool in tools]
    assert names == ["bash", "job"]


def test_schema_of_an_unknown_contract() -> None:
    said = run_nacre("schema", "--contract", "nope")
    assert said.returncode == 2
    assert "there is no contract 'nope'" in said.stderr
