"""`make bench`: run the benchmarks and print each result with its promised limit.

nacre and the reference program are measured alternately in one run. The exit status is 1 when a
result misses its limit by more than 10 %, which is the noise of this kind of machine.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from bench.limits import build
from bench.result import Result

BENCHES = (
    "latency",
    "sessions",
    "warden",
    "fronts",
    "decide",
    "many",
    "tree",
    "startup",
    "capture",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", choices=BENCHES, action="append", help="just this one")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    options = parser.parse_args()
    results = list(_measured(options.only or BENCHES, quiet=options.json))
    if options.json:
        rows = [result._asdict() | {"kept": result.kept} for result in results]
        print(json.dumps({"results": rows}, indent=2))
    return 1 if any(result.failed for result in results) else 0


def _measured(names: Iterator[str] | tuple[str, ...], *, quiet: bool) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="nacre-bench-") as directory:
        os.environ["NACRE_HOME"] = f"{directory}/state"
        program = build(Path(directory))
        for name in names:
            for result in import_module(f"bench.{name}").measure(program):
                if not quiet:
                    print(_line(result), flush=True)
                yield result


def _line(result: Result) -> str:
    mark = "ok  " if result.kept else "MISS" if result.failed else "near"
    measured = f"{result.measured:.3g} {result.unit}".strip()
    limit = f"{result.sense} {result.limit:g}"
    return f"{mark} {result.promise:<46} {measured:>14}  {limit:<13} {result.detail}"


if __name__ == "__main__":
    sys.exit(main())
