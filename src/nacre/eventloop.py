"""Event loop: one epoll for descriptors, plus timers and callbacks posted by other threads.

A waiting thread drives the event loop by calling `EventLoop.step`. A foreign event loop, such as
asyncio's, can drive nacre's event loop by watching `fileno()`, because an epoll descriptor is
itself pollable. A foreign event loop calls `step(0)` when `fileno()` is readable or when
`next_deadline()` has passed. `post` is the only method of the event loop that another thread may
call. Timers use the monotonic clock, so a jump of the wall clock does not affect them.
"""

import heapq
import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

Callback = Callable[[], None]
_MAX_TIMEOUT: Final = 3600.0  # maximum seconds of one wait; epoll cannot wait longer than 24 days
now = time.monotonic


class Timer:
    """Handle of a scheduled callback; `cancel` drops the callback."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callback) -> None:
        self.when = when
        self.call: Callback | None = call

    def cancel(self) -> None:
        self.call = None


class EventLoop:
    def __init__(self) -> None:
        # Whether the event loop is closed; also True while `__init__` still opens its descriptors.
        self._closed = True
        self._epoll = select.epoll()
        self._on_readable: dict[int, Callback] = {}
        self._on_writable: dict[int, Callback] = {}  # callbacks for writable descriptors
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._posted: deque[Callback] = deque()
        # The lock is reentrant, because a signal handler may call `post` while its own thread is
        # inside `post`.
        self._lock = threading.RLock()
        try:
            self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._epoll.close()
            raise
        self._closed = False
        self.watch(self._wakeup, self._run_posted)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def watch(self, fd: int, on_readable: Callback) -> None:
        """Call `on_readable` whenever `fd` is readable, until `unwatch` is called."""
        self._on_readable[fd] = on_readable
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except FileExistsError:
            # The epoll already has `fd`, because the caller repeats a call of `watch` that an
            # interrupt (Ctrl-C) cut short.
            return
        except OSError:
            del self._on_readable[fd]
            raise

    def unwatch(self, fd: int) -> None:
        self._on_writable.pop(fd, None)
        if self._on_readable.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def watch_writable(self, fd: int, on_writable: Callback) -> None:
        """Call `on_writable` whenever `fd` is writable, until `unwatch_writable` is called.

        The caller must call `watch` for `fd` before it calls `watch_writable`.
        """
        self._on_writable[fd] = on_writable
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT)

    def unwatch_writable(self, fd: int) -> None:
        if self._on_writable.pop(fd, None) is not None:
            self._epoll.modify(fd, select.EPOLLIN)

    def call_later(self, seconds: float, call: Callback) -> Timer:
        timer = Timer(now() + seconds, call)
        heapq.heappush(self._timers, (timer.when, next(self._order), timer))
        return timer

    def next_deadline(self) -> float | None:
        """Return the monotonic time at which the next timer is due; None if there is no timer."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def post(self, call: Callback) -> bool:
        """Schedule the callback `call` in the thread that drives the event loop; any thread may
        call `post`.

        `post` returns False when the event loop is closed.
        """
        with self._lock:
            if self._closed:
                return False
            self._posted.append(call)
            os.eventfd_write(self._wakeup, 1)
            return True

    def step(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds for a descriptor or timer, and run the ready callbacks."""
        due = self.next_deadline()
        if due is not None:
            until = min(max(0.0, due - now()), _MAX_TIMEOUT)
            timeout = until if timeout is None else min(timeout, until)
        found = self._epoll.poll(timeout)
        rooms = self._find_writable(found) if self._on_writable else ()
        if rooms:  # skip descriptors that are only writable: they have nothing to read
            found = [(fd, what) for fd, what in found if what != select.EPOLLOUT]
        watched = [(fd, self._on_readable.get(fd)) for fd, _ in found]
        for fd, ready in watched:
            # Skip `fd` if an earlier callback has closed it, because the number may now belong to a
            # new descriptor, for which the kernel has reported no event.
            if ready is not None and self._on_readable.get(fd) is ready:
                ready()
        for fd, room in rooms:
            if self._on_writable.get(fd) is room:
                room()
        if self._timers:
            self._run_timers()

    def _find_writable(self, found: list[tuple[int, int]]) -> list[tuple[int, Callback]]:
        wrote = select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP
        return [
            (fd, self._on_writable[fd])
            for fd, what in found
            if what & wrote and fd in self._on_writable
        ]

    def clear_timers(self) -> None:
        """Drop all timers after the last operation has ended."""
        self._timers.clear()

    def intact(self) -> bool:
        """Return whether the event loop's descriptors are still open and still belong to the
        loop."""
        try:
            self._epoll.modify(self._wakeup, select.EPOLLIN)
        except (OSError, ValueError):  # ValueError means that the epoll object is closed
            return False
        return True

    def after_fork(self) -> None:
        """Replace the event loop's lock after fork(2): a thread of the parent process may have held
        it."""
        self._lock = threading.RLock()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # If a callback closes the event loop, no other callback may run afterwards.
            self._on_readable.clear()
            self._on_writable.clear()
            self._timers.clear()
            self._posted.clear()
            self._epoll.close()
            os.close(self._wakeup)

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    def _run_posted(self) -> None:
        os.eventfd_read(self._wakeup)
        while self._posted:
            call = self._posted.popleft()
            try:
                call()
            except BaseException:  # an interrupted callback runs again in the next `step()`
                if not self._closed:
                    self._posted.appendleft(call)
                    os.eventfd_write(self._wakeup, 1)
                raise

    def _run_timers(self) -> None:
        moment = now()
        while self._timers and self._timers[0][0] <= moment:
            entry = heapq.heappop(self._timers)
            call, entry[2].call = entry[2].call, None
            if call is None:
                continue
            try:
                call()
            except BaseException:  # an interrupted callback runs again in the next `step()`
                if self._closed:
                    raise
                entry[2].call = call
                heapq.heappush(self._timers, entry)
                raise
