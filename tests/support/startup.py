"""Undo what the test process inherited from the way it was started.

`nohup` leaves SIGHUP ignored, a background job of a script leaves SIGINT ignored, a supervisor may
leave signals blocked, `<&-` leaves descriptor 0 free for the next file that is opened, and a
container may set PYTHONUNBUFFERED, which changes when programs print. Every command under test
would inherit all of that. `make test` loads this module with `-p`, before pytest opens its first
file; `conftest` imports it for runs without make.
"""

import os
import signal
import sys

# Python ignores these itself, and resets them in the processes that it starts.
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}


def open_standard_descriptors() -> None:
    """Open /dev/null on each of 0, 1 and 2 that is closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(opened, True)
    # Python has none for a descriptor that was closed when it started.
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def reset_signals() -> None:
    """Set ignored signals to their default, and block none."""
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) == signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


open_standard_descriptors()
reset_signals()
os.environ.pop("PYTHONUNBUFFERED", None)
