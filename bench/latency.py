"""`echo hi` through the whole `Tool.call`, beside a C posix_spawn of the same bash."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import nacre
from bench.limits import Spawner
from bench.result import Result, spread

PAIRS = 400


def measure(program: Path) -> Iterator[Result]:
    yield _pairs(program, "echo through Tool.call", 1.2)
    held = b"\1" * (2 << 30)  # touched, so that a fork would have to copy its page tables
    yield _pairs(program, "the same in a parent of 2 GB", 1.2)
    del held


def _pairs(program: Path, promise: str, limit: float) -> Result:
    spawner = Spawner(program)
    with nacre.Tool("harness") as tool:
        for _ in range(40):
            spawner.microseconds()
            _call(tool)
        pairs = [(spawner.microseconds(), _call(tool)) for _ in range(PAIRS)]
    spawner.close()
    in_c, ours = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Result(
        promise,
        median(ours) / median(in_c),
        limit,
        "x",
        "at most",
        f"{median(ours):.0f} µs ({spread(ours)}), C {median(in_c):.0f} µs ({spread(in_c)}), "
        f"{PAIRS} pairs",
    )


def _call(tool: nacre.Tool) -> float:
    begin = time.perf_counter()
    reply = tool.call({"command": "echo hi"})
    seconds = time.perf_counter() - begin
    assert reply.details["stdout"] == "hi\n"
    return seconds * 1e6
