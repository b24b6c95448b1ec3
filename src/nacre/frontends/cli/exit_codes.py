"""Exit codes of `nacre run`, `wait` and `attach`."""

import signal
from typing import Final

from nacre.model.outcome import Ending, Exited, Lost, NotStarted, TimedOut, ending_code

TIMEOUT_EXIT: Final = 124
NOT_STARTED_EXIT: Final = 125  # also of a run that was lost
_KILLED_EXIT: Final = 128 + signal.SIGKILL


def exit_code(ending: Ending | None) -> int:
    """For `nacre run`: the command's own code where it has one; 128+n for a signal."""
    match ending:
        case TimedOut():
            return TIMEOUT_EXIT
        case NotStarted() | Lost():
            return NOT_STARTED_EXIT
    code = ending_code(ending)
    return _KILLED_EXIT if code is None else code


def waiter_exit_code(ending: Ending | None) -> int:
    """For commands that wait for a run: never 0 for a run that was stopped, although its command
    may have exited with 0 then."""
    return exit_code(ending) or (0 if isinstance(ending, Exited) else _KILLED_EXIT)
