"""Exit codes of `nacre run`, `nacre wait` and `nacre attach`."""

import signal
from typing import Final

from nacre.model.outcome import Ending, Exited, Lost, NotStarted, TimedOut, ending_code

TIMEOUT_EXIT: Final = 124
NOT_STARTED_EXIT: Final = 125  # exit code for a run that was not started or was lost
_KILLED_EXIT: Final = 128 + signal.SIGKILL


def exit_code(ending: Ending | None) -> int:
    """Return the exit code of `nacre run`: the command's own code, or 128+n for signal n."""
    match ending:
        case TimedOut():
            return TIMEOUT_EXIT
        case NotStarted() | Lost():
            return NOT_STARTED_EXIT
    code = ending_code(ending)
    return _KILLED_EXIT if code is None else code


def waiter_exit_code(ending: Ending | None) -> int:
    """Return the exit code of `nacre wait` and `nacre attach`, which is never 0 for a stopped run,
    even if the command exited with 0."""
    return exit_code(ending) or (0 if isinstance(ending, Exited) else _KILLED_EXIT)
