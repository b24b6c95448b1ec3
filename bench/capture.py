"""Benchmark of capturing gigabytes of output, compared with a C program.

nacre counts and spills the output; the C program only reads and writes.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median

import nacre
from bench.result import Result

GIB = 1 << 30
# Seconds to wait before each measurement. A virtual machine returns freed memory to its host at
# random times. Using that memory again costs time, which may halve a rate. The wait lets the
# machine return the memory first, and medians are compared. One more benchmark does not wait, and
# compares the best rounds.
SETTLE = 3.0
Pick = Callable[[Iterable[float]], float]


def measure(program: Path) -> Iterator[Result]:
    name = "counts, head, tail, spill"
    yield _rate(program, f"capture 1 GiB: {name}", 1, rounds=5, pick=median, settle=SETTLE)
    yield _rate(program, f"capture 4 GiB: {name}", 4, rounds=3, pick=median, settle=SETTLE)
    yield _rate(program, "capture 1 GiB: the best of each", 1, rounds=8, pick=min)
    yield _memory(program)


def _rate(
    program: Path, name: str, gib: int, *, rounds: int, pick: Pick, settle: float = 0.0
) -> Result:
    size, pairs = gib * GIB, []
    with tempfile.TemporaryDirectory(prefix="nacre-bench-") as directory:
        for _ in range(rounds):
            _settle(settle)
            in_c = _in_c(program, directory, size)
            _settle(settle)
            ours = _ours(program, directory, size)
            pairs.append((in_c, ours))
    in_c, ours = pick(pair[0] for pair in pairs), pick(pair[1] for pair in pairs)
    return Result(
        name,
        in_c / ours,
        0.6,
        "x rate",
        "at least",
        f"{size / ours / 1e9:.2f} GB/s, C {size / in_c / 1e9:.2f} GB/s, {rounds} pairs",
    )


def _settle(seconds: float) -> None:
    os.sync()
    time.sleep(seconds)


def _in_c(program: Path, directory: str, size: int) -> float:
    path = f"{directory}/c.out"
    said = subprocess.run([program, "capture", path, str(size)], capture_output=True, check=True)
    os.unlink(path)
    return float(said.stdout)


def _ours(program: Path, directory: str, size: int) -> float:
    spill = nacre.Spill(directory=os.fsencode(directory), when=nacre.When.ALWAYS, limit=2 * size)
    begin = time.perf_counter()
    outcome = nacre.run(f"exec {program} gen {size}", spill=spill)
    seconds = time.perf_counter() - begin
    saved = outcome.output.saved
    assert saved is not None
    assert saved.path is not None
    assert outcome.output.size == size == saved.size == os.path.getsize(saved.path)
    os.unlink(saved.path)
    return seconds


_GROWTH = """
import os, sys, nacre
def now(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))
nacre.run("true")
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before = now("VmRSS")
spill = nacre.Spill(directory=sys.argv[3].encode(), when=nacre.When.ALWAYS, limit=1 << 40)
outcome = nacre.run(f"exec {sys.argv[1]} gen {sys.argv[2]}", spill=spill)
assert outcome.output.size == int(sys.argv[2])
print(now("VmHWM") - before)
"""


def _memory(program: Path) -> Result:
    with tempfile.TemporaryDirectory(prefix="nacre-bench-") as directory:
        words = [sys.executable, "-c", _GROWTH, str(program), str(4 * GIB), directory]
        said = subprocess.run(words, capture_output=True, check=True)
    return Result(
        "memory growth over 4 GiB of output",
        int(said.stdout) / 1024,
        4.0,
        "MB",
        "at most",
        "highest resident size during the run, above the size before it; 1 MiB of it is the window",
    )
