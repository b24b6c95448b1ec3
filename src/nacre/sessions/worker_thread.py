"""Background worker thread for session housekeeping; the thread exits after 1 s without a job."""

import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Final

from nacre.process.spawner import idle_threads

_IDLE: Final = 1.0  # seconds without a job after which the worker thread exits


class Worker:
    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._jobs.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nacre-worker", daemon=True)
                self._thread.start()
            else:
                self._lock.notify()

    def close(self) -> None:
        """Drop all queued jobs and wait until the running job has ended."""
        with self._lock:
            self._closed = True
            self._jobs.clear()
            self._lock.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def after_fork(self) -> None:
        """Forget the worker thread and its jobs in a forked child, because the thread exists only
        in the parent process."""
        self._lock = threading.Condition()
        self._jobs.clear()
        self._thread = None

    def _run(self) -> None:
        idle_threads.add(threading.current_thread())
        try:
            while (work := self._next_job()) is not None:
                try:
                    work()
                except Exception:  # noqa: BLE001 - a failed job must not stop the next job
                    traceback.print_exc()
        finally:
            idle_threads.discard(threading.current_thread())

    def _next_job(self) -> Callable[[], None] | None:
        with self._lock:
            if not self._jobs and not self._closed:
                self._lock.wait(_IDLE)
            if self._jobs:
                return self._jobs.popleft()
            self._thread = None
            return None
