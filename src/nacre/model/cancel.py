"""A token by which any thread, task or signal handler calls a command off.

Whoever runs something subscribes to the token it was given.
"""

import signal as signals
import threading
from collections.abc import Callable

from nacre.model.signals import check_signal

Subscriber = Callable[[int], None]


class CancelToken:
    """Cancel once to stop gently (a signal, then the grace); cancel again to insist (KILL)."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may cancel while the same thread is subscribing.
        self._lock = threading.RLock()
        self._signal: int | None = None
        self._subscribers: list[Subscriber] = []

    @property
    def cancelled(self) -> bool:
        return self._signal is not None

    def cancel(self, signal: int = signals.SIGTERM) -> None:
        """Stop what runs under this token, now or when it is about to start."""
        check_signal(signal)
        with self._lock:
            self._signal = signal
            subscribers = list(self._subscribers)
        for subscriber in subscribers:
            subscriber(signal)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber(signal)` at each cancel; returns what ends the subscription."""
        with self._lock:
            self._subscribers.append(subscriber)
        return lambda: self._unsubscribe(subscriber)

    def _unsubscribe(self, subscriber: Subscriber) -> None:
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
