"""Cancellation token, with which any thread, task or signal handler can cancel a command.

The engine's ticket subscribes to the token that the caller passed with the command.
"""

import signal as signals
import threading
from collections.abc import Callable

from nacre.model.signals import check_signal

Subscriber = Callable[[int], None]


class CancelToken:
    """Token that cancels a command.

    The first cancel sends a signal and gives the command its grace. The second cancel sends KILL.
    """

    def __init__(self) -> None:
        # Reentrant lock: a signal handler may call `cancel` while its thread is in `subscribe`.
        self._lock = threading.RLock()
        self._signal: int | None = None
        self._subscribers: list[Subscriber] = []

    @property
    def cancelled(self) -> bool:
        return self._signal is not None

    def cancel(self, signal: int = signals.SIGTERM) -> None:
        """Stop every command that runs under this token or is about to start with it."""
        check_signal(signal)
        with self._lock:
            self._signal = signal
            subscribers = list(self._subscribers)
        for subscriber in subscribers:
            subscriber(signal)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber(signal)` at each cancel. Return the function that unsubscribes."""
        with self._lock:
            self._subscribers.append(subscriber)
        return lambda: self._unsubscribe(subscriber)

    def _unsubscribe(self, subscriber: Subscriber) -> None:
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
