"""Separate directory for the temporary files of each run of the test suite.

By default, pytest uses one directory for all test runs of a user, and each test run cleans it up at
its end. If two test runs end at the same time, one can fail on a file that the other has just
removed.
"""

import shutil
import tempfile

import pytest

_made = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set the directory before pytest chooses one. xdist gives each worker a subdirectory of it."""
    if not hasattr(config, "workerinput") and config.option.basetemp is None:
        config.option.basetemp = config.stash[_made] = tempfile.mkdtemp(prefix="nacre-tests-")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove the directory, unless a test failed: its files may show the cause."""
    made = session.config.stash.get(_made, None)
    if made is not None and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(made, ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> str | None:
    made = config.stash.get(_made, None)
    return None if made is None else f"temporary files: {made}, removed when all tests pass"
