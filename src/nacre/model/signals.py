"""Conversion between signal names and signal numbers."""

import signal as signals
from signal import Signals


def check_signal(number: int) -> None:
    """Check a signal number before the signal is sent. Raises ValueError for an invalid signal
    number."""
    if not 0 < number < signals.NSIG:
        raise ValueError(f"{number} is not a signal; signals are 1 to {signals.NSIG - 1}")


def signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - Signals.SIGRTMIN}"


def signal_number(given: str | int) -> int:
    """Return the number of a signal that is given as `TERM`, `SIGTERM`, `15` or 15.

    Raises ValueError, with the remedy in its message, for an unknown signal.
    """
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise ValueError(
            f"{given!r} is not a signal; write a name like TERM, INT or KILL, or a number"
        )
    if isinstance(given, str) and not given.isdigit():
        name = given.upper().removeprefix("SIG")
        try:
            return Signals[f"SIG{name}"]
        except KeyError:
            raise ValueError(
                f"there is no signal {given!r}; write a name like TERM, INT or KILL"
            ) from None
    check_signal(int(given))
    return int(given)
