"""Does what nobody waits for, in a thread of its own that goes when there is nothing left to do."""

import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Final

from nacre.process.child import harmless

_IDLE: Final = 1.0  # seconds for which it stays


class Stoker:
    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._todo: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._over = False

    def do(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._over:
                return
            self._todo.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nacre-stoker", daemon=True)
                self._thread.start()
            else:
                self._lock.notify()

    def close(self) -> None:
        """Nothing is begun any more; what is under way is waited for."""
        with self._lock:
            self._over = True
            self._todo.clear()
            self._lock.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def forked(self) -> None:
        """The thread is the parent's."""
        self._lock = threading.Condition()
        self._todo.clear()
        self._thread = None

    def _run(self) -> None:
        harmless.add(threading.current_thread())
        try:
            while (work := self._next()) is not None:
                try:
                    work()
                except Exception:  # noqa: BLE001 - nobody waits for it, but others do for the next
                    traceback.print_exc()
        finally:
            harmless.discard(threading.current_thread())

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if not self._todo and not self._over:
                self._lock.wait(_IDLE)
            if self._todo:
                return self._todo.popleft()
            self._thread = None
            return None
