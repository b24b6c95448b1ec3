"""The C program that does the same work with nothing around it."""

import shutil
import subprocess
import sys
from pathlib import Path


def build(directory: Path) -> Path:
    """Compile it; without a C compiler there is nothing to compare with, and we say so."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        sys.exit("make bench needs a C compiler (cc) for the limits; install one")
    program = directory / "limits"
    source = Path(__file__).parent / "limits.c"
    subprocess.run([compiler, "-O2", "-o", program, source], check=True)
    return program


class Spawner:
    """A C process that spawns an echo whenever it is asked to."""

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
