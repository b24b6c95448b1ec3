"""Descriptors and clocks: one epoll, driven by whoever waits.

A thread calls `step`; an event loop watches `fileno()` (an epoll descriptor is itself pollable)
and calls `step(0)` when it is readable or when `next_deadline()` has come. Only `post` may be
called from another thread. Clocks are monotonic: a wall clock that jumps changes nothing.
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
_MAX_TIMEOUT: Final = 3600.0  # epoll cannot wait for a month, and need not
now = time.monotonic


class Timer:
    """A call to come; `cancel` forgets it."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callback) -> None:
        self.when = when
        self.call: Callback | None = call

    def cancel(self) -> None:
        self.call = None


class EventLoop:
    def __init__(self) -> None:
        self._closed = True  # until it is open
        self._epoll = select.epoll()
        self._on_readable: dict[int, Callback] = {}
        self._on_writable: dict[int, Callback] = {}  # those that want to write
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._posted: deque[Callback] = deque()
        # Reentrant: a signal handler may post while its own thread is posting.
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
        """Call `on_readable` whenever `fd` can be read, until `unwatch`."""
        self._on_readable[fd] = on_readable
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except FileExistsError:  # done again after an interrupt
            return
        except OSError:
            del self._on_readable[fd]
            raise

    def unwatch(self, fd: int) -> None:
        self._on_writable.pop(fd, None)
        if self._on_readable.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def watch_writable(self, fd: int, on_writable: Callback) -> None:
        """Call `on_writable` whenever `fd`, which is watched, can be written, until
        `unwatch_writable`."""
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
        """When the next timer wants `step`, on the monotonic clock."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def post(self, call: Callback) -> bool:
        """From any thread: have `call` made by whoever drives. False when the loop is closed."""
        with self._lock:
            if self._closed:
                return False
            self._posted.append(call)
            os.eventfd_write(self._wakeup, 1)
            return True

    def step(self, timeout: float | None = None) -> None:
        """Wait until something is ready, at most `timeout` seconds, and serve what is."""
        due = self.next_deadline()
        if due is not None:
            until = min(max(0.0, due - now()), _MAX_TIMEOUT)
            timeout = until if timeout is None else min(timeout, until)
        found = self._epoll.poll(timeout)
        rooms = self._find_writable(found) if self._on_writable else ()
        if rooms:  # who can only be written has nothing to be read
            found = [(fd, what) for fd, what in found if what != select.EPOLLOUT]
        watched = [(fd, self._on_readable.get(fd)) for fd, _ in found]
        for fd, ready in watched:
            # A call may have closed a descriptor that comes after it, and another may have got
            # its number: what the kernel said was about the one watched before.
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
        """Nobody waits for a timer any more."""
        self._timers.clear()

    def intact(self) -> bool:
        """Whether the descriptors that we opened are still there, and still ours."""
        try:
            self._epoll.modify(self._wakeup, select.EPOLLIN)
        except (OSError, ValueError):  # or it is closed
            return False
        return True

    def after_fork(self) -> None:
        """We are the copy of one in another process, where somebody may have held the lock."""
        self._lock = threading.RLock()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # It may be a call of ours that closes us: nothing may come after it.
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
            except BaseException:  # interrupted: it will be made in the next step
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
            except BaseException:  # interrupted: it will be made in the next step
                if self._closed:
                    raise
                entry[2].call = call
                heapq.heappush(self._timers, entry)
                raise
