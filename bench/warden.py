"""Benchmarks of the warden.

A command through the warden is compared with a spawn in C. Other benchmarks measure the delay of a
client's event loop during a flood of output, the cost of an idle warden, and the memory of each
live run.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from statistics import median

import nacre
from bench.limits import beside
from bench.result import Result
from nacre.store import run_owner
from nacre.warden import endpoint

LIVE = 500
FLOOD = 4 << 30
_MB = 1024 * 1024


def measure(program: Path) -> Iterator[Result]:
    with nacre.Tool("harness", place="warden") as tool, nacre.Tool("phoenix") as phoenix:
        tool.call({"command": "true"})
        yield _echo(program, tool, "echo through the warden, 10 ms apart", 1.4, pause=0.01)
        yield _echo(program, tool, "echo through the warden, back to back", 1.7, pause=0.0)
        yield _background(program, phoenix)
        yield from _flood()
        yield from _idle()
        yield _live(phoenix)
    end_warden()


def end_warden() -> None:
    """End the warden that this benchmark has started."""
    os.kill(_pid(), 15)


def _pid() -> int:
    found = run_owner.parse_owner(endpoint.read_owner() or "")
    assert found is not None
    assert found.is_alive
    return found.pid


def _echo(program: Path, tool: nacre.Tool, promise: str, limit: float, *, pause: float) -> Result:
    def call() -> float:
        time.sleep(pause)
        begin = time.perf_counter()
        reply = tool.call({"command": "echo hi"})
        seconds = time.perf_counter() - begin
        assert reply.details["stdout"] == "hi\n"
        return seconds * 1e6

    return beside(program, call, promise, limit, pause)


def _background(program: Path, tool: nacre.Tool) -> Result:
    def call() -> float:
        time.sleep(0.01)
        begin = time.perf_counter()
        reply = tool.call({"command": "true", "mode": "background"})
        seconds = time.perf_counter() - begin
        assert not reply.is_error
        return seconds * 1e6

    return beside(program, call, "starting a background run", 2.0, 0.01)


def _flood() -> Iterator[Result]:
    """Measure timer delays in the client's event loop while the warden reads 4 GiB of output. For
    comparison, measure the delays while the same output goes to /dev/null without nacre."""
    command = f"head -c {FLOOD} /dev/zero | tr '\\0' '\\n'"

    async def through_the_warden() -> None:
        with nacre.Tool("harness", place="warden") as tool:
            await tool.acall({"command": command})

    async def to_nowhere() -> None:
        process = await asyncio.create_subprocess_shell(f"{command} > /dev/null")
        await process.wait()

    alone, _ = asyncio.run(_lateness(to_nowhere()))
    late, seconds = asyncio.run(_lateness(through_the_warden()))
    yield Result(
        "p99 of a 10 ms timer during a 4 GiB flood",
        late[len(late) * 99 // 100],
        5.0,
        "ms late",
        "at most",
        f"{len(late)} ticks in {seconds:.1f} s, median {median(late):.2f} ms; "
        f"without nacre p99 {alone[len(alone) * 99 // 100]:.1f} ms",
    )


async def _lateness(work: Awaitable[None]) -> tuple[list[float], float]:
    """Return the sorted timer delays during `work`, in milliseconds, and the duration of `work` in
    seconds."""
    late: list[float] = []
    begin = time.perf_counter()
    working = asyncio.ensure_future(work)
    while not working.done():
        before = time.perf_counter()
        await asyncio.sleep(0.01)
        late.append((time.perf_counter() - before - 0.01) * 1000)
    await working
    return sorted(late), time.perf_counter() - begin


def _idle() -> Iterator[Result]:
    pid = _pid()
    time.sleep(0.5)
    before = _switches(pid)
    time.sleep(5)
    woken = _switches(pid) - before
    yield Result("idle warden", _resident(pid) / _MB, 20.0, "MB", "at most", "resident")
    yield Result("wake-ups of an idle warden in 5 s", woken, 0.0, "", "at most", "")


def _live(tool: nacre.Tool) -> Result:
    """Measure the warden's memory for each live run. Like a server, each run prints some output at
    its start and is then silent."""
    pid = _pid()
    before = _resident(pid)
    command = "seq 20000; exec sleep 600"
    replies = [tool.call({"command": command, "mode": "background"}) for _ in range(LIVE)]
    time.sleep(2)
    grown = (_resident(pid) - before) / LIVE / _MB
    for run in tool.runs(1):
        if run.state == "running":
            run.end(grace=1)
    assert not any(reply.is_error for reply in replies)
    return Result(
        f"memory of each of {LIVE} live runs", grown, 1.0, "MB", "at most", "in the warden"
    )


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _switches(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])
