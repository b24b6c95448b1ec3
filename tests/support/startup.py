"""Reset of signals, descriptors and variables that the test process inherits from its parent.

`nohup` leaves SIGHUP ignored. A background job of a script has SIGINT ignored. A supervisor may
leave signals blocked. `<&-` leaves descriptor 0 free for the next opened file. A container may set
PYTHONUNBUFFERED, which changes when programs print. Every command under test would inherit these
settings. `make test` loads this module with `-p`, before pytest opens its first file. `conftest`
loads this module for test runs without make.
"""

import os
import signal
import sys

# Signals that Python itself ignores and resets to their default in child processes.
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}


def open_standard_descriptors() -> None:
    """Open /dev/null on each of the descriptors 0, 1 and 2 that is closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # open(2) returns the lowest free descriptor
            os.set_inheritable(opened, True)
    # A standard stream is None if its descriptor was closed when Python started.
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def reset_signals() -> None:
    """Set ignored signals to their default action, and unblock all signals."""
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) == signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


open_standard_descriptors()
reset_signals()
os.environ.pop("PYTHONUNBUFFERED", None)
