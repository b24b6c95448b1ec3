"""Cancellation token, with which any thread, task or signal handler can cancel a command.

The caller passes a cancellation token when it starts a command, and the command's ticket (the
handle of a started command) subscribes to the token.
"""

import signal as signals
import threading
from collections.abc import Callable

from nacre.model.signals import check_signal

Subscriber = Callable[[int], None]


class CancelToken:
    """Token that cancels a command.

    The first call of `cancel` sends a signal and lets the command exit within its grace period; the
    second call sends KILL.
    """

    def __init__(self) -> None:
        # The lock of a cancellation token is reentrant, because a signal handler may call `cancel`
        # while the interrupted thread holds the lock in `subscribe`.
        self._lock = threading.RLock()
        self._signal: int | None = None
        self._subscribers: list[Subscriber] = []

    @property
    def cancelled(self) -> bool:
        return self._signal is not None

    def cancel(self, signal: int = signals.SIGTERM) -> None:
        """Stop every command that runs, or is about to start, with this cancellation token."""
        check_signal(signal)
        with self._lock:
            self._signal = signal
            subscribers = list(self._subscribers)
        for subscriber in subscribers:
            subscriber(signal)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Register a function, which every later call of `cancel` calls with the signal number;
        return a function that removes the registration."""
        with self._lock:
            self._subscribers.append(subscriber)
        return lambda: self._unsubscribe(subscriber)

    def _unsubscribe(self, subscriber: Subscriber) -> None:
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
