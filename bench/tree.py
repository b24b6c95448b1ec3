"""Benchmark of a process tree's end: time from KILL until all 202 processes are dead.

Some processes have left the process group.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.result import Result

ROUNDS = 5
# 102 processes stay in the process group, 40 run under setsid, and 60 are double-forked. All
# processes ignore TERM, so that only KILL ends them.
_SCRIPT = """
trap '' TERM
for i in $(seq 101); do sleep 86399.5 & done
for i in $(seq 40); do setsid sleep 86399.5 & done
for i in $(seq 60); do (setsid sleep 86399.5 &); done
echo ready
wait; sleep 86399.5
"""
_HOST = """
import sys, time
from nacre import CancelToken, Chunk
from nacre.procfs import processes
from nacre.engine.engine import Engine
from nacre.model.plan import Command, Limits, Plan
from nacre.process import process_tree
script, ours = sys.argv[1].encode(), sys.argv[2] == "ours"
if ours:
    from nacre.process.own_process import become_subreaper
    assert become_subreaper()
killed = []
kill = process_tree.ProcessTree.kill
def timed(self):
    killed.append(time.perf_counter())
    return kill(self)
process_tree.ProcessTree.kill = timed
plan = Plan(command=Command(original=script, script=script, cwd=b"/"),
            limits=Limits(timeout=1.5, grace=0.1))
engine = Engine(own_process=ours)
outcome = engine.start(plan).wait()
ended = time.perf_counter()
left = [pid for pid, process in processes.read_all_processes().items()
        if process.alive and processes.command_line(pid) == "sleep 86399.5"]
assert outcome.output.head == b"ready\\n", outcome
print((ended - killed[0]) * 1e3, len(left) + len(outcome.left_running))
"""


def measure(program: Path) -> Iterator[Result]:
    del program  # `program` is unused: the limit is a fixed time, not a ratio to C
    for kind, where, limit in (("ours", "nacre's own process", 50.0), ("host", "a host", 80.0)):
        rounds = [_round(kind) for _ in range(ROUNDS)]
        milliseconds = [each[0] for each in rounds]
        detail = f"{min(milliseconds):.0f}..{max(milliseconds):.0f} ms in {ROUNDS} rounds"
        name = f"from KILL to 202 dead in {where}"
        yield Result(name, median(milliseconds), limit, "ms", "at most", detail)
        left = sum(each[1] for each in rounds)
        yield Result(f"survivors in {where}", left, 0, "", "at most", "of 202, escapees included")


def _round(kind: str) -> tuple[float, int]:
    words = [sys.executable, "-c", _HOST, _SCRIPT, kind]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    milliseconds, left = said.stdout.split()
    return float(milliseconds), int(left)
