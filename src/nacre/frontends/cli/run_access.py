"""Access to runs, for the commands that wait for a run, write to it or end it.

This module is separate from `common`, because it loads the warden's client. `nacre run` does not
need that client.
"""

from nacre.engine.engine import Engine
from nacre.frontends.cli.common import find_current_workspace
from nacre.runs.access import RunAccess


def open_access(cwd: str | None) -> RunAccess:
    """Return access to the runs of the workspace of `cwd`. Raises OSError."""
    return RunAccess(Engine(wake_on_signals=True), find_current_workspace(cwd))
