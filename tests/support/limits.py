"""Time limit for each test: a test that exceeds its limit fails, and the suite continues.

The handler of SIGALRM raises an exception in the main thread, even during `read`, `wait` or epoll.
SIGALRM is repeated. The first exception may leave a `with Popen(...)` block, whose exit waits
for the process again. If the main thread never returns to Python code, the watchdog writes the
traceback of every thread and ends the process. Under xdist only that test fails, and a new worker
continues.

`@pytest.mark.limit(SECONDS)` sets the limit of one test. `--limit SECONDS` sets a minimum for the
limits of all tests, for long test runs.
"""

import faulthandler
import os
import signal
from collections.abc import Iterator

import pytest

SECONDS = 60.0
_AGAIN = 10.0  # seconds between two SIGALRM signals after the limit
_WATCHDOG = 45.0  # seconds from the limit until the watchdog ends the process

_stderr = pytest.StashKey[int]()
_in_phase = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--limit", type=float, default=0, metavar="SECONDS", help="the least limit of every test"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): the time limit of a test, 60 s without it")
    # The watchdog needs a copy of stderr, because pytest captures descriptor 2 during a test.
    config.stash[_stderr] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_stderr])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Apply the limit to a test with its fixtures, because fixtures wait for processes too."""
    mark = item.get_closest_marker("limit")
    limit = max(float(mark.args[0]) if mark else SECONDS, item.config.getoption("--limit"))

    def fail(number: int, frame: object) -> None:
        del number, frame
        if item.stash.get(_in_phase, False):  # elsewhere the exception would end the pytest run
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
