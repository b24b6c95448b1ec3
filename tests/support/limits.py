"""A time limit for each test, after which that test fails and the suite goes on.

SIGALRM raises in the main thread, wherever that waits: in a `read`, a `wait` or the engine's epoll.
It is repeated, since a `with Popen(...)` that is left by the first one waits for its process again.
Where the main thread does not come back to Python at all, the watchdog writes every thread's
traceback and ends the process; under xdist that fails the one test, and another worker goes on.

A test that needs longer has `@pytest.mark.limit(SECONDS)`; `--limit SECONDS` is for the long runs.
"""

import faulthandler
import os
import signal
from collections.abc import Iterator

import pytest

SECONDS = 60.0
_AGAIN = 10.0  # seconds between the repetitions
_WATCHDOG = 45.0  # seconds after the limit

_stderr = pytest.StashKey[int]()
_in_phase = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--limit", type=float, default=0, metavar="SECONDS", help="the least limit of every test"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): the time limit of a test, 60 s without it")
    # A descriptor of its own: while a test runs, pytest captures 2.
    config.stash[_stderr] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_stderr])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Include fixtures: these wait for processes too."""
    mark = item.get_closest_marker("limit")
    limit = max(float(mark.args[0]) if mark else SECONDS, item.config.getoption("--limit"))

    def fail(number: int, frame: object) -> None:
        del number, frame
        if item.stash.get(_in_phase, False):  # elsewhere it would end the session
            pytest.fail(f"this test took more than its limit of {limit:g} s")

    previous = signal.signal(signal.SIGALRM, fail)
    faulthandler.dump_traceback_later(limit + _WATCHDOG, exit=True, file=item.config.stash[_stderr])
    signal.setitimer(signal.ITIMER_REAL, limit, _AGAIN)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def _phase(item: pytest.Item) -> Iterator[None]:
    item.stash[_in_phase] = True
    try:
        return (yield)
    finally:
        item.stash[_in_phase] = False


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = _phase
