"""Benchmark of 500 concurrent commands in one thread, compared with a poll loop in C."""

import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.result import Result
from nacre.engine.engine import Engine
from nacre.model.outcome import Exited
from nacre.model.plan import Command, Plan

COUNT = 500
ROUNDS = 5


def measure(program: Path) -> Iterator[Result]:
    _raise_descriptor_limit()
    _ours()
    rounds = [(_in_c(program), *_ours()) for _ in range(ROUNDS)]
    in_c, wall, cpu = (median(column) for column in zip(*(r[:3] for r in rounds), strict=True))
    threads = max(r[3] for r in rounds)
    detail = f"{wall:.3f} s, C {in_c:.3f} s, {ROUNDS} pairs"
    yield Result(f"{COUNT} commands at once, wall", wall / in_c, 1.1, "x", "at most", detail)
    yield Result(
        f"{COUNT} commands at once, CPU", cpu, 0.25, "s", "at most", "CPU time of this process"
    )
    yield Result(
        f"{COUNT} commands at once, threads",
        threads,
        1,
        "",
        "at most",
        "only the thread that calls",
    )


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _in_c(program: Path) -> float:
    said = subprocess.run([program, "many", str(COUNT)], capture_output=True, check=True)
    return float(said.stdout)


def _ours() -> tuple[float, float, int]:
    script = b"sleep 0.2; echo x"
    plan = Plan(command=Command(original=script, script=script, cwd=os.getcwdb()))
    engine = Engine()
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    tickets = [engine.start(plan) for _ in range(COUNT)]
    threads = threading.active_count()
    outcomes = [ticket.wait() for ticket in tickets]
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    assert all(each.ending == Exited(0) and each.output.head == b"x\n" for each in outcomes)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, threads
