"""Benchmark of `echo hi` through `Tool.call`, compared with posix_spawn of bash in C."""

import time
from collections.abc import Iterator
from pathlib import Path

import nacre
from bench.limits import beside
from bench.result import Result


def measure(program: Path) -> Iterator[Result]:
    yield _pairs(program, "echo through Tool.call", 1.2)
    held = b"\1" * (2 << 30)  # written memory, whose page tables fork(2) would have to copy
    yield _pairs(program, "the same in a parent of 2 GB", 1.2)
    del held


def _pairs(program: Path, promise: str, limit: float) -> Result:
    with nacre.Tool("harness") as tool:
        return beside(program, lambda: _call(tool), promise, limit)


def _call(tool: nacre.Tool) -> float:
    begin = time.perf_counter()
    reply = tool.call({"command": "echo hi"})
    seconds = time.perf_counter() - begin
    assert reply.details["stdout"] == "hi\n"
    return seconds * 1e6
