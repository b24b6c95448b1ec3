"""Call of `nacre explain` within the test process, for tests with many commands."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nacre.frontends.cli.explain import explain, explanation_to_json

TOOLS = ["read", "search", "find", "edit", "write"]
CASES = Path(__file__).parents[1] / "data" / "cases"


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
    return explanation_to_json(explained)


def table(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((CASES / f"{name}.json").read_text())
    return rows
