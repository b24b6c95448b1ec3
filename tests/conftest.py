"""Plugins and fixtures of every test: a time limit, a leak check, and an empty home directory."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support import helpers

pytest_plugins = [
    "tests.support.startup",
    "tests.support.limits",
    "tests.support.order",
    "tests.support.leaks",
    "tests.support.base_temp",
    "tests.support.command_line",
]

settings.register_profile("nacre", deadline=None, derandomize=True)
settings.load_profile("nacre")


@pytest.fixture(autouse=True, scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Put the name of this worker into the environment of its processes; see `helpers.named`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(helpers.WORKER, str(tmp_path_factory.getbasetemp()))
        yield


@pytest.fixture(autouse=True, scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep bytecode for the hundreds of Python interpreters that tests start. Compiling nacre in
    each interpreter takes longer than the tests. `make` sets a directory that outlives the test
    run."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTHONPYCACHEPREFIX" not in os.environ:
            patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set HOME to an empty directory: a real user's set-up would enter sessions and may be slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("user")))
        yield
