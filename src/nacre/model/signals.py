"""Signals by name and by number."""

import signal as signals
from signal import Signals


def check_signal(number: int) -> None:
    """ValueError for what is no signal, before anybody is to send it."""
    if not 0 < number < signals.NSIG:
        raise ValueError(f"{number} is no signal; they are 1 to {signals.NSIG - 1}")


def signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - Signals.SIGRTMIN}"


def signal_number(given: str | int) -> int:
    """Of `TERM`, `SIGTERM`, `15` or 15. ValueError, with the remedy, for what is none."""
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise ValueError(f"{given!r} is no signal; write TERM, INT, KILL or so, or its number")
    if isinstance(given, str) and not given.isdigit():
        name = given.upper().removeprefix("SIG")
        try:
            return Signals[f"SIG{name}"]
        except KeyError:
            raise ValueError(f"there is no signal {given!r}; write TERM, INT, KILL or so") from None
    check_signal(int(given))
    return int(given)
