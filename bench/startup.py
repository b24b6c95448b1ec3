"""Benchmark of startup: `import nacre` and `nacre run true`, minus the time of bare Python."""

import compileall
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

import nacre
from bench.result import Result, spread

ROUNDS = 25


def measure(program: Path) -> Iterator[Result]:
    del program  # `program` is unused: the reference is bare Python
    for package in (nacre, msgspec):
        assert package.__file__ is not None
        compileall.compile_dir(Path(package.__file__).parent, quiet=2)
    bare = [sys.executable, "-c", "pass"]
    command = str(Path(sys.executable).parent / "nacre")
    yield _above(bare, [sys.executable, "-c", "import nacre"], "import nacre", 30)
    everything = "import nacre; nacre.Tool, nacre.run"
    yield _above(bare, [sys.executable, "-c", everything], "import nacre, and use it", 120)
    yield _above(bare, [command, "run", "true"], "nacre run true", 120)


def _above(bare: Sequence[str], words: Sequence[str], name: str, limit: float) -> Result:
    for each in (bare, words):
        _milliseconds(each)
    pairs = [(_milliseconds(bare), _milliseconds(words)) for _ in range(ROUNDS)]
    base, ours = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    detail = f"{median(ours):.0f} ms ({spread(ours)}), bare Python {median(base):.0f} ms"
    return Result(name, median(ours) - median(base), limit, "ms more", "at most", detail)


def _milliseconds(words: Sequence[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(words, check=True)
    return (time.perf_counter() - begin) * 1e3
