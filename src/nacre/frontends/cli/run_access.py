"""Access to runs, for the commands that wait for a run, write to it or end it.

Apart from `common`: it loads the warden's client, which `nacre run` does without.
"""

from nacre.engine.engine import Engine
from nacre.frontends.cli.common import find_current_workspace
from nacre.runs.access import RunAccess


def open_access(cwd: str | None) -> RunAccess:
    """Access to the runs of the workspace of `cwd`. Raises OSError."""
    return RunAccess(Engine(wake_on_signals=True), find_current_workspace(cwd))
