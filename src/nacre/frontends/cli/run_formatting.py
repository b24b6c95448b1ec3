"""Formatting of runs, errors, ages and paths as the text that the `nacre` commands print."""

import contextlib
import os
import re
import shlex

from nacre.model.outcome import Ending, ending_code, ending_state
from nacre.model.signals import signal_name
from nacre.store.listing import find_workspace_of_run
from nacre.store.stored_run import NoSuchRun, StoredRun


def describe_error(error: Exception) -> str:
    """Return the message of an error. If a run is not found because it belongs to another
    workspace, the error message also names that workspace."""
    if isinstance(error, NoSuchRun):
        return f"{error.args[0]}{_hint(str(error.args[0]))}"
    return str(error)


def _hint(message: str) -> str:
    """Return the end of the error message about an unknown run: a hint that names the workspace to
    which the run belongs."""
    found = re.search(r"there is no run r(\d+) in this workspace", message)
    if found is None:
        return ""
    with contextlib.suppress(OSError):
        place = find_workspace_of_run(int(found[1]))
        if place is not None:
            return f"; it belongs to {place}: change to it, or give --cwd {shlex.quote(place)}"
    return "; nacre ps lists the runs"


def describe_ending(state: Ending | None) -> str:
    """Return the state of a run as text, such as `running`, `exit 3`, `SIGKILL` or `timed out`."""
    code = ending_code(state)
    match ending_state(state):
        case "exited":
            return f"exit {code}"
        case "killed":
            return signal_name((code or 128) - 128)
        case word:
            return word.replace("_", " ")


def describe_run(run: StoredRun) -> str:
    """Return one line with the run's id, its state and its duration."""
    state = describe_ending(run.ending)
    return (
        f"{run.name}: {state}"
        if state == "lost"
        else f"{run.name}: {state} after {run.seconds:.1f} s"
    )


def format_age(seconds: float) -> str:
    """Format an age in seconds as text in its largest unit: `12s`, `3m`, `2h` or `4d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def short_path(path: str) -> str:
    user = os.path.expanduser("~")
    return f"~{path[len(user) :]}" if path == user or path.startswith(f"{user}/") else path
