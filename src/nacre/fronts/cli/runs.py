"""What the commands about runs share: which workspace, which run, in words."""

import os

from nacre.engine.engine import Engine
from nacre.outcome import Ending, code_of, state_of
from nacre.reach import Reach
from nacre.signals import signal_name
from nacre.store.reading import NoSuchRun, Run
from nacre.store.workspace import workspace


def here(cwd: str | None) -> bytes:
    """The workspace there. Raises OSError."""
    return workspace(os.path.abspath(os.fsencode(cwd or os.getcwd())))


def reach(cwd: str | None) -> Reach:
    return Reach(Engine(), here(cwd))


def problem(error: Exception) -> str:
    """As a sentence."""
    if isinstance(error, NoSuchRun):
        return f"{error.args[0]}; nacre ps lists what there is"
    return str(error)


def ended(state: Ending | None) -> str:
    """`running`, `exit 3`, `signal 9`, `timed out`."""
    code = code_of(state)
    match state_of(state):
        case "exited":
            return f"exit {code}"
        case "killed":
            return signal_name((code or 128) - 128)
        case word:
            return word.replace("_", " ")


def said(run: Run) -> str:
    """How it stands, for a remark."""
    return f"{run.name}: {ended(run.state)} after {run.seconds:.1f} s"


def exit_code(state: Ending | None) -> int:
    """What whoever has waited for it exits with."""
    match state_of(state):
        case "timed_out":
            return 124
        case "not_started" | "lost":
            return 125
        case _:
            return code_of(state) or 0


def ago(seconds: float) -> str:
    """`12s`, `3m`, `2h`, `4d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def short_path(path: str) -> str:
    user = os.path.expanduser("~")
    return f"~{path[len(user) :]}" if path == user or path.startswith(f"{user}/") else path
