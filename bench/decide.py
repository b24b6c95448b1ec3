"""Benchmark of the checks between a model's command and the spawn, with empty caches."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.result import Result, spread
from nacre.bash.analyze import analyze
from nacre.bash.leading_cd import find_leading_cd
from nacre.contracts import registry
from nacre.contracts.contract import Checks
from nacre.model.caller import Caller
from nacre.prepare.decide import decide

ROUNDS = 300
TYPICAL = [
    b"ls -la",
    b"cd src && grep -rn 'TODO' . | head -20",
    b"git status --short && git diff --stat",
    b"python -m pytest tests/ -x -q 2>&1 | tail -20",
    b"sed -n '10,40p' src/main.py",
    b"npm ci && npm test",
    b'rm -rf "$BUILD_DIR" && mkdir -p build',
    b'for f in *.py; do wc -l "$f"; done',
    b"cat > notes.md <<'EOF'\n# Notes\n\nIt's a file with `code` and $vars.\nEOF",
    b"if [ -f package.json ]; then cat package.json; fi",
    b"curl -s http://localhost:8000/health | jq .status",
]
LONG = b"cat > module.py <<'EOF'\n" + b"print('a line of forty characters or so')\n" * 500 + b"EOF"


def measure(program: Path) -> Iterator[Result]:
    del program  # `program` is unused: the limit is a fixed time, not a ratio to C
    tools = ("read", "search", "find", "edit", "write")
    caller = Caller(cwd=os.getcwdb(), env=dict(os.environb), tools=tools)
    everything = {"intercept": "warn", "safety": "disk,git,workspace"}
    for name, checks in {
        "nacre": registry.build_checks("nacre", {}),
        "phoenix": registry.build_checks("phoenix", {}),
        "pi, all rules on": registry.build_checks("pi", everything),
    }.items():
        times = [_microseconds(text, checks, caller) for text in TYPICAL]
        detail = f"{len(TYPICAL)} commands: {spread(times)} µs, the slowest {max(times):.0f} µs"
        yield Result(
            f"decide a typical command ({name})", median(times) / 1e3, 0.2, "ms", "at most", detail
        )
    text = _microseconds(LONG, registry.build_checks("nacre", {}), caller)
    detail = f"{len(LONG) / 1024:.0f} KiB in a heredoc"
    yield Result("decide a command with a file in it", text / 1e3, 0.5, "ms", "at most", detail)


def _microseconds(text: bytes, checks: Checks, caller: Caller) -> float:
    times = []
    for _ in range(ROUNDS):
        analyze.cache_clear()
        find_leading_cd.cache_clear()
        plan = checks.plan(text, caller)
        began = time.perf_counter()
        decide(plan, checks.steps, caller)
        times.append((time.perf_counter() - began) * 1e6)
    return median(times)
