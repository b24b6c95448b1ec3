"""What every test has: a time limit, a leak check, and a user without a set-up of their own."""

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
    """A name for this worker that its processes inherit; see `helpers.named`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(helpers.WORKER, str(tmp_path_factory.getbasetemp()))
        yield


@pytest.fixture(autouse=True, scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep bytecode for the hundreds of interpreters that tests start. Compiling nacre in each of
    them takes longer than the tests. `make` names a directory that outlives the run."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTHONPYCACHEPREFIX" not in os.environ:
            patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nobody's own set-up: sessions would begin with it, and it may take its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("user")))
        yield
