"""The reference: a C program that does the same work as nacre, without nacre's features."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.result import Result, spread

PAIRS = 400


def build(directory: Path) -> Path:
    """Compile the C program and return its path. Without a C compiler, exit with a message, because
    the benchmarks would have no reference."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        sys.exit("make bench needs a C compiler (cc) for the limits; install one")
    program = directory / "limits"
    source = Path(__file__).parent / "limits.c"
    subprocess.run([compiler, "-O2", "-o", program, source], check=True)
    return program


class Spawner:
    """C process that spawns `bash -c 'echo hi'` on request and measures the time."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [program, "spawn"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def microseconds(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def beside(
    program: Path, call: Callable[[], float], promise: str, limit: float, pause: float = 0.0
) -> Result:
    """Measure `call` and the spawn in C alternately, and compare the medians. The function `call`
    runs a command through nacre and returns microseconds."""
    spawner = Spawner(program)
    for _ in range(40):
        spawner.microseconds()
        call()
    pairs = []
    for _ in range(PAIRS):
        time.sleep(pause)
        pairs.append((spawner.microseconds(), call()))
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
