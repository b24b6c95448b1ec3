"""Tests of the exit codes of `nacre run`, `nacre wait` and `nacre attach`."""

import pytest

from nacre.frontends.cli.exit_codes import exit_code, waiter_exit_code
from nacre.model.outcome import Cancelled, Ending, Exited, Killed, Lost, NotStarted, TimedOut
from nacre.model.refusals import CannotSpawn


@pytest.mark.parametrize(
    ("ending", "run", "waiter"),
    [
        (Exited(0), 0, 0),
        (Exited(3), 3, 3),
        (Killed(15), 143, 143),
        (TimedOut(1.0, Exited(0)), 124, 124),
        (Cancelled(Exited(3)), 3, 3),
        (Cancelled(Exited(0)), 0, 137),  # trap exits with 0; `nacre wait` still reports a failure
        (Cancelled(Killed(2)), 130, 130),
        (Cancelled(None), 137, 137),
        (NotStarted(CannotSpawn(reason="no")), 125, 125),
        (Lost(last_seen=1.0), 125, 125),
    ],
)
def test_exit_codes(ending: Ending, run: int, waiter: int) -> None:
    assert (exit_code(ending), waiter_exit_code(ending)) == (run, waiter)
