"""Access to runs for the commands that wait for a run, write to it or end it, such as `nacre kill`.

The module `run_access` is separate from `common`, because it imports the client of the warden
(nacre's daemon), which `nacre run` does not need.
"""

from nacre.engine.engine import Engine
from nacre.frontends.cli.common import find_current_workspace
from nacre.runs.access import RunAccess


def open_access(cwd: str | None) -> RunAccess:
    """Return an object that controls the runs of the workspace to which the directory `cwd`
    belongs. Raises OSError."""
    return RunAccess(Engine(wake_on_signals=True), find_current_workspace(cwd))
