"""Order of the tests: `--order-seed N` shuffles them, and tests that measure run last and alone.

Tests of one xdist group stay together, because they share a fixture. Every worker computes the same
order from the same seed. A test with `@pytest.mark.alone` takes an exclusive lock on a file. All
other tests take a shared lock on that file, so no test of any worker disturbs the measurement.
"""

import fcntl
import os
import random
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

_ALONE = "alone"
_lock = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order-seed", type=int, metavar="N", help="shuffle the tests by this seed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: no other test of this run runs at the same time")
    if not hasattr(config, "workerinput"):
        fd, config.stash[_lock] = tempfile.mkstemp(prefix="nacre-tests-", suffix=".lock")
        os.close(fd)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.unlink(config.stash[_lock])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the path of the lock file from the xdist controller to a worker."""
    node.workerinput["lock"] = node.config.stash[_lock]


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("--order-seed")
    return None if seed is None else f"order: shuffled with --order-seed {seed}"


# `tryfirst`, because xdist must see the groups that this hook adds.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--order-seed")
    for item in items:
        if _is_alone(item):
            item.add_marker(pytest.mark.xdist_group(_ALONE))
    if seed is not None:
        random.Random(seed).shuffle(items)
        first: dict[str, int] = {}
        for position, item in enumerate(items):
            first.setdefault(_group_of(item), position)
        items.sort(key=lambda item: first[_group_of(item)])
    items.sort(key=_is_alone)


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker(_ALONE) is not None


def _group_of(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return f"@{mark.args[0]}" if mark else item.nodeid


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Take the lock before the time limit of the test starts."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    lock = os.open(item.config.workerinput["lock"], os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH)
        return (yield)
    finally:
        os.close(lock)
