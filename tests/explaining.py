"""`nacre explain` without a process of its own, for tests that ask a lot."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nacre.fronts.cli.explain import as_json, explain

TOOLS = ["read", "search", "find", "edit", "write"]
CASES = Path(__file__).parent / "cases"


def asked(
    command: str,
    *,
    contract: str = "nacre",
    tools: list[str] | None = None,
    options: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> dict[str, Any]:
    explained = explain(
        command, contract=contract, tools=tools or [], options=dict(options or {}), cwd=cwd
    )
    return as_json(explained)


def table(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((CASES / f"{name}.json").read_text())
    return rows
