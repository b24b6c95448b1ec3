"""Long-running tests. `make test` runs a short form of each; `make chaos` runs the full form."""

import asyncio
import os
import random
from pathlib import Path

import pytest

import nacre
from nacre import Cancelled, CancelToken, Exited, NotStarted, TimedOut
from tests.support.helpers import named, resident

pytestmark = pytest.mark.slow

SOAK = int(os.environ.get("NACRE_SOAK", "300"))
RACES = int(os.environ.get("NACRE_RACES", "60"))


def test_thousands_in_a_row_leave_nothing(tmp_path: Path) -> None:
    """Check that memory stays constant. The leak check covers descriptors, zombies and files."""
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        for _ in range(100):
            tool.call({"command": "echo warm; echo up >&2"})
        before, descriptors = resident(), len(os.listdir("/proc/self/fd"))
        for i in range(SOAK):
            assert tool.call({"command": f"echo {i}"}).details["stdout"] == f"{i}\n"
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert resident() - before < 2_000_000
    assert list(tmp_path.glob("nacre*")) == []


def test_a_flood_in_constant_memory() -> None:
    nacre.run("head -c 30000000 /dev/zero")
    before = resident()
    outcome = nacre.run("yes 'a line of some length, as programs write them' | head -c 400000000")
    assert outcome.output.size == 400_000_000
    # The limit is a twentieth of the output. `make bench` checks the promised 4 MB in a separate
    # process. Here the growth also depends on the heap that earlier tests left in the C library.
    assert resident() - before < 20_000_000


def test_ends_and_cancels_that_race() -> None:
    """Cancel runs at random moments: before the start, during the run and after the end."""
    dice = random.Random(20261115)

    async def one(i: int) -> object:
        token = CancelToken()
        asyncio.get_running_loop().call_later(dice.uniform(0, 0.012), token.cancel)
        script = dice.choice(["true", "echo x", "sleep 0.005", "sleep 98761.5", "sleep 0.004 &"])
        outcome = await nacre.arun(script, cancel=token, timeout=0.01 if i % 7 == 0 else None)
        for survivor in outcome.left_running:
            assert "98761" not in survivor.command
        return outcome.ending

    async def all_of_them() -> list[object]:
        endings = []
        for start in range(0, RACES, 20):
            endings += await asyncio.gather(*(one(i) for i in range(start, start + 20)))
        return endings

    for ending in asyncio.run(all_of_them()):
        assert isinstance(ending, Cancelled | NotStarted | TimedOut) or ending == Exited(0)
    assert named("98761.5") == []
