"""Benchmark of reply sizes: characters of the replies to everyday commands and tasks, under each
contract.

    python -m bench.cost            print the tables of docs/guide/costs.md
    python -m bench.cost --write    also write the tables to that page

Each row names the output line that matters to the model. The benchmark checks whether the reply
contains that line. If a contract needs several calls for the same result, the characters of all
replies are added.
"""

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import nacre
from bench.tasks import Task, perform, tasks
from nacre.contracts import registry

CONTRACTS = ("nacre", "phoenix", "harness", "pi")
PAGE = Path(__file__).parent.parent / "docs" / "guide" / "costs.md"
BEGIN, END = "<!-- printed by bench/cost.py -->\n", "<!-- end of what is printed -->\n"
BEGIN_TASKS = "<!-- tasks, printed by bench/cost.py -->\n"
NEAR = 20  # maximum characters by which nacre's reply exceeds the shortest reply
FAR = 0.5  # nacre's reply to large output has at most this fraction of any other reply's size

PYTHON = shlex.quote(sys.executable)
_SUITE = """cat > test_suite.py <<'EOF'
import unittest
class Suite(unittest.TestCase):
    pass
def test(n):
    return lambda self: self.assertEqual(n * n, n * n if n != 23 else 0)
for number in range(40):
    setattr(Suite, f"test_{number}", test(number))
EOF
PYTHON -m unittest -v test_suite"""
_INSTALL = r"""PYTHON -c '
for n in range(120):
    for p in range(0, 101, 4):
        bar = "#" * (p // 4)
        print(f"\r\033[2K\033[36mfetch\033[0m package-{n:03} [{bar:25}] {p}%", end="")
    if n % 10 == 0:
        print("\r\033[2K\033[33mwarn\033[0m deprecated glob@7.2.3: no longer supported")
print("\r\033[2Kadded 120 packages, and audited 121 packages in 12s")
'"""
_BAR = r"""PYTHON -c '
for n in range(2001):
    bar = "#" * (n // 50)
    print(f"\r{n / 20:5.1f}% |{bar:40}| {n}/2000", end="")
print()
'"""
_EQUAL = """PYTHON -c '
for n in range(100_000):
    print("ERROR: quota exceeded for user build" if n == 61_803 else "waiting for database ...")
'"""
_DIFFERENT = """PYTHON -c '
for n in range(100_000):
    print(f"2026-11-16 10:{n // 60 % 60:02}:{n % 60:02} INFO request {n} served in {n * 7 % 93} ms")
print("ERROR: out of connections")
'"""


class Row(NamedTuple):
    name: str
    command: str
    matters: str  # regular expression that must match in the reply
    large: bool = False  # whether the output is too long for a person to read completely
    # Arguments of the calls, by contract. A contract without an entry gets one call of `command`.
    calls: Mapping[str, list[dict[str, Any]]] = MappingProxyType({})


def rows(port: int) -> list[Row]:
    serve = f"PYTHON -u -m http.server --bind 127.0.0.1 {port}"
    ready = f"until (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done"
    ask = "printf 'Overwrite config? [y/N] '; read -r x || exit 1; echo $x"
    slow = "echo working; sleep 60"
    return [
        Row("short success", "echo hello", "hello"),
        Row("empty success", "true", ""),
        Row("failing test run", _SUITE, "AssertionError: 529 != 0"),
        Row("noisy install", _INSTALL, "added 120 packages"),
        Row("progress bar", _BAR, "2000/2000", large=True),
        Row("100,000 lines, nearly all equal", _EQUAL, "ERROR: quota exceeded", large=True),
        Row("100,000 different lines", _DIFFERENT, "ERROR: out of connections"),
        Row("binary", "head -c 300000 /dev/urandom", "", large=True),
        Row(
            "timeout",
            slow,
            "working",
            calls={name: [{"command": slow, "timeout": 1}] for name in ("nacre", "pi")},
        ),
        Row(
            "background server until ready",
            serve,
            "",
            calls={
                "nacre": [{"command": serve, "until": {"port": port}}],
                "phoenix": [{"command": serve, "mode": "background"}, {"command": ready}],
                "harness": [{"command": f"{serve} & {ready}; echo $!"}],
                "pi": [{"command": serve, "async": True}, {"command": ready}],
            },
        ),
        Row(
            "interactive prompt",
            ask,
            re.escape("Overwrite config? [y/N] "),
            calls={"nacre": [{"command": ask, "interactive": True}]},
        ),
    ]


OPTIONS: dict[str, dict[str, Any]] = {
    "nacre": {},
    "phoenix": {"timeout": 5},
    "harness": {"timeout": 5},
    "pi": {"async": True},
}


class Cost(NamedTuple):
    row: Row
    characters: dict[str, int]
    calls: dict[str, int]
    shows_line: dict[str, bool]  # whether the reply contains the line that matters, by contract

    @property
    def near(self) -> bool:
        return self.characters["nacre"] <= min(self.characters.values()) + NEAR

    @property
    def far(self) -> bool:
        others = [self.characters[name] for name in CONTRACTS if name != "nacre"]
        return self.characters["nacre"] <= FAR * min(others)


def measured() -> Iterator[Cost]:
    for row in rows(_free_port()):
        found = {name: _paid(name, row) for name in CONTRACTS}
        yield Cost(
            row,
            {name: len(text) for name, (text, _) in found.items()},
            {name: count for name, (_, count) in found.items()},
            {name: bool(re.search(row.matters, text)) for name, (text, _) in found.items()},
        )


def _paid(name: str, row: Row) -> tuple[str, int]:
    calls = row.calls.get(name, [{"command": row.command}])
    limited = row.name == "timeout" and name in ("phoenix", "harness")
    options = {**OPTIONS[name], **({"timeout": 1} if limited else {})}
    texts = []
    with (
        tempfile.TemporaryDirectory(prefix="nacre-cost-") as place,
        nacre.Tool(name, cwd=place, options=options) as tool,
    ):
        for call in calls:
            command = call["command"].replace("PYTHON", PYTHON)
            texts.append(tool.call({**call, "command": command}).text)
        for run in tool.runs():
            with contextlib.suppress(nacre.Refused):
                run.end("KILL")
    return "\n".join(texts), len(calls)


class TaskCost(NamedTuple):
    task: Task
    characters: dict[str, int]
    shows_line: dict[str, bool]  # whether a reply contains the line that matters, by contract


def measured_tasks(contracts: Sequence[str] = CONTRACTS) -> Iterator[TaskCost]:
    for task in tasks(_free_port()):
        texts = {name: _perform(name, task) for name in contracts}
        yield TaskCost(
            task,
            {name: len(text) for name, text in texts.items()},
            {name: re.search(task.matters, text) is not None for name, text in texts.items()},
        )


def _perform(name: str, task: Task) -> str:
    with (
        tempfile.TemporaryDirectory(prefix="nacre-cost-") as place,
        nacre.Tool(name, cwd=place, options=OPTIONS[name]) as tool,
    ):
        subprocess.run(["bash", "-ec", task.setup], cwd=place, check=True)
        text = perform(tool, task.calls[name])
        for run in tool.runs():
            with contextlib.suppress(nacre.Refused):
                run.end("KILL")
    return text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def task_table(costs: list[TaskCost]) -> str:
    lines = [f"| | {' | '.join(CONTRACTS)} |", f"|---|{'---:|' * len(CONTRACTS)}"]
    for cost in costs:
        cells = []
        for name in CONTRACTS:
            calls = len(cost.task.calls[name])
            lost = "" if cost.shows_line[name] else " (lost)"
            cells.append(
                f"{cost.characters[name]:,} in {calls} call{'s' if calls > 1 else ''}{lost}"
            )
        lines.append(f"| {cost.task.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def table(costs: list[Cost]) -> str:
    lines = [
        f"| | {' | '.join(CONTRACTS)} | the line that matters |",
        f"|---|{'---:|' * len(CONTRACTS)}---|",
    ]
    for cost in costs:
        cells = []
        for name in CONTRACTS:
            calls = f" in {cost.calls[name]} calls" if cost.calls[name] > 1 else ""
            lost = "" if cost.shows_line[name] else " (lost)"
            cells.append(f"{cost.characters[name]:,}{calls}{lost}")
        matters = cost.row.matters.replace("\\", "")
        matters = f"`{matters}`" if matters else "-"
        lines.append(f"| {cost.row.name} | {' | '.join(cells)} | {matters} |")
    return "\n".join([*lines, ""])


def main() -> int:
    assert set(CONTRACTS) == set(registry.contract_names())
    with tempfile.TemporaryDirectory(prefix="nacre-cost-") as state:
        os.environ["NACRE_HOME"] = state
        tables = {BEGIN: table(list(measured())), BEGIN_TASKS: task_table(list(measured_tasks()))}
    print("\n".join(tables.values()), end="")
    if "--write" in sys.argv[1:]:
        for begin, text in tables.items():
            before, _, rest = PAGE.read_text().partition(begin)
            PAGE.write_text(f"{before}{begin}{text}{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
