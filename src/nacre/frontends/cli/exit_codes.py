"""Exit codes of the commands that run a command or wait for a run."""

import signal
from typing import Final

from nacre.model.outcome import Ending, Lost, NotStarted, TimedOut, ending_code

TIMEOUT_EXIT: Final = 124
NOT_STARTED_EXIT: Final = 125  # also where the status of the command is not known


def exit_code(ending: Ending | None) -> int:
    """The command's own code where it has one; 128+n for a signal."""
    match ending:
        case TimedOut():
            return TIMEOUT_EXIT
        case NotStarted() | Lost():
            return NOT_STARTED_EXIT
    code = ending_code(ending)
    return 128 + signal.SIGKILL if code is None else code
