"""Each run of the suite has its own directory for temporary files.

pytest's own default is shared by all runs of a user, and a run that ends cleans it up: two runs
that end at the same time can fail on what the other has just removed.
"""

import shutil
import tempfile

import pytest

_made = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before pytest chooses; workers get their part of it from xdist."""
    if not hasattr(config, "workerinput") and config.option.basetemp is None:
        config.option.basetemp = config.stash[_made] = tempfile.mkdtemp(prefix="nacre-tests-")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove it, unless a test failed: its files may say why."""
    made = session.config.stash.get(_made, None)
    if made is not None and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(made, ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> str | None:
    made = config.stash.get(_made, None)
    return None if made is None else f"temporary files: {made}, removed when all tests pass"
