"""Tests of the MCP server with MCP's inspector, an independent client that runs on Node.js."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import PROGRAM

INSPECTOR = Path(sys.prefix) / "inspector" / "node_modules" / ".bin" / "mcp-inspector"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not INSPECTOR.exists() or shutil.which("node") is None,
        reason="DID NOT RUN: MCP's inspector is not here; `make test-adapters` installs it by npm",
    ),
]


def inspect(place: Path, *words: str) -> dict[str, Any]:
    said = subprocess.run(
        [str(INSPECTOR), "--cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=place,
        env=dict(os.environ),
    )
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def server(home: Path) -> list[str]:
    return ["-e", f"NACRE_HOME={home}", PROGRAM, "mcp"]


def test_the_inspector_lists_calls_and_reads(tmp_path: Path, home: Path) -> None:
    listed = inspect(tmp_path, *server(home), "--method", "tools/list")
    assert [tool["name"] for tool in listed["tools"]] == ["bash", "job"]
    words = ["--method", "tools/call", "--tool-name", "bash", "--tool-arg"]
    called = inspect(tmp_path, *server(home), *words, "command=echo hi; exit 3")
    assert called["content"] == [{"type": "text", "text": "hi\n[exit code 3]"}]
    assert called["isError"] is False
    assert called["structuredContent"]["exit_code"] == 3
    listed = inspect(tmp_path, *server(home), "--method", "resources/list")
    assert [each["uri"] for each in listed["resources"]] == ["artifact://1"]
    words = ["--method", "resources/read", "--uri", "artifact://1"]
    (content,) = inspect(tmp_path, *server(home), *words)["contents"]
    assert content["text"] == "hi\n"
