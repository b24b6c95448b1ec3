"""Benchmark of sessions: an `echo` in a prewarmed shell, compared with posix_spawn of bash in C.

The prewarmed shell has read a set-up of three hundred functions. The bash in C reads no set-up.
"""

import math
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nacre
from bench.limits import beside
from bench.result import Result
from bench.warden import end_warden
from nacre.procfs import processes

FUNCTIONS = 300
SAVED = "x=1; echo hi"  # causes a save of the shell's state, but changes nothing
CHANGES = "((n += 1)); echo hi"
_FUNCTION = """\
work_{number}() {{
    local name="$1" result=${{2:-none}}
    if [[ -n $name && $result != done ]]; then
        printf '%s: %s\\n' "$name" "$result"
    else
        return {number} % 256
    fi
}}
"""


def measure(program: Path) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="nacre-bench-") as home:
        Path(home, ".bashrc").write_text(
            "".join(_FUNCTION.format(number=number) for number in range(FUNCTIONS))
        )
        env = {**os.environ, "HOME": home}
        with nacre.Tool("pi", cwd=home, env=env) as tool:
            assert _said(tool, "x=1; type -t work_7") == "function"
            yield _pairs(program, tool, "echo in a session, 20 ms apart", 0.6, pause=0.02)
            yield _pairs(program, tool, "the same back to back", 2.5)
            yield _pairs(
                program, tool, "20 ms apart, state saved (no promise)", math.inf, 0.02, SAVED
            )
            yield _pairs(
                program, tool, "back to back, state changed (no promise)", math.inf, 0.0, CHANGES
            )
            yield from _idle(tool)
        with nacre.Tool("pi", cwd=home, env=env, place="warden") as tool:
            assert _said(tool, "type -t work_7") == "function"
            yield _pairs(
                program, tool, "echo in a session in the warden, 20 ms apart", 0.8, pause=0.02
            )
            yield _pairs(program, tool, "the same back to back", 2.5)
        end_warden()


def _said(tool: nacre.Tool, command: str) -> str:
    reply = tool.call({"command": command})
    assert not reply.is_error, reply.text
    return reply.text.partition("\n")[0]


def _pairs(
    program: Path,
    tool: nacre.Tool,
    promise: str,
    limit: float,
    pause: float = 0.0,
    command: str = "echo hi",
) -> Result:
    def call() -> float:
        time.sleep(pause)
        begin = time.perf_counter()
        reply = tool.call({"command": command})
        seconds = time.perf_counter() - begin
        assert reply.text.startswith("hi\n"), reply.text
        return seconds * 1e6

    return beside(program, call, promise, limit, pause)


def _idle(tool: nacre.Tool) -> Iterator[Result]:
    """Measure the private memory and the CPU time of idle prewarmed shells."""
    _said(tool, "true")
    time.sleep(0.5)
    shells = [
        pid for pid in processes.list_own_children() if "_nacre_in" in processes.command_line(pid)
    ]
    assert shells
    before = sum(map(_ticks, shells))
    time.sleep(2)
    spent = sum(map(_ticks, shells)) - before
    private = max(map(_private, shells)) / 1024
    waiting = f"{len(shells)} wait"
    yield Result("private memory of a shell that waits", private, 3.0, "MB", "at most", waiting)
    yield Result("CPU time of waiting shells in 2 s", spent, 0.0, "ticks", "at most", waiting)


def _private(pid: int) -> int:
    rollup = processes.read_file(f"/proc/{pid}/smaps_rollup").decode()
    return sum(map(int, re.findall(r"^Private_\w+:\s+(\d+) kB", rollup, re.MULTILINE)))


def _ticks(pid: int) -> int:
    fields = processes.read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])
