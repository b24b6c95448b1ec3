"""Descriptors and clocks: one epoll, driven by whoever waits.

A thread calls `step`; an event loop watches `fileno()` (an epoll descriptor is itself pollable)
and calls `step(0)` when it is readable or when `due()` has come. Only `post` may be called from
another thread. Clocks are monotonic: a wall clock that jumps changes nothing.
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

Call = Callable[[], None]
_LONGEST: Final = 3600.0  # epoll cannot wait for a month, and need not
now = time.monotonic


class Timer:
    """A call to come; `cancel` forgets it."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Call) -> None:
        self.when = when
        self.call: Call | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    _closed = True  # until it is open

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ready: dict[int, Call] = {}
        self._room: dict[int, Call] = {}  # those that want to write
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._posted: deque[Call] = deque()
        # Reentrant: a signal handler may post while its own thread is posting.
        self._lock = threading.RLock()
        try:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._epoll.close()
            raise
        self._closed = False
        self.watch(self._bell, self._silence)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def watch(self, fd: int, ready: Call) -> None:
        """Call `ready` whenever `fd` can be read, until it is forgotten."""
        self._ready[fd] = ready
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except FileExistsError:  # done again after an interrupt
            return
        except OSError:
            del self._ready[fd]
            raise

    def forget(self, fd: int) -> None:
        self._room.pop(fd, None)
        if self._ready.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def await_room(self, fd: int, room: Call) -> None:
        """Call `room` whenever `fd`, which is watched, can be written, until it has enough."""
        self._room[fd] = room
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT)

    def enough_room(self, fd: int) -> None:
        if self._room.pop(fd, None) is not None:
            self._epoll.modify(fd, select.EPOLLIN)

    def after(self, seconds: float, call: Call) -> Timer:
        timer = Timer(now() + seconds, call)
        heapq.heappush(self._timers, (timer.when, next(self._order), timer))
        return timer

    def due(self) -> float | None:
        """When the next timer wants `step`, on the monotonic clock."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def post(self, call: Call) -> bool:
        """From any thread: have `call` made by whoever drives. False when the loop is closed."""
        with self._lock:
            if self._closed:
                return False
            self._posted.append(call)
            os.eventfd_write(self._bell, 1)
            return True

    def step(self, patience: float | None = None) -> None:
        """Wait until something is ready, at most `patience` seconds, and serve what is."""
        due = self.due()
        if due is not None:
            until = min(max(0.0, due - now()), _LONGEST)
            patience = until if patience is None else min(patience, until)
        found = self._epoll.poll(patience)
        rooms = self._rooms(found) if self._room else ()
        if rooms:  # who can only be written has nothing to be read
            found = [(fd, what) for fd, what in found if what != select.EPOLLOUT]
        watched = [(fd, self._ready.get(fd)) for fd, _ in found]
        for fd, ready in watched:
            # A call may have closed a descriptor that comes after it, and another may have got
            # its number: what the kernel said was about the one watched before.
            if ready is not None and self._ready.get(fd) is ready:
                ready()
        for fd, room in rooms:
            if self._room.get(fd) is room:
                room()
        if self._timers:
            self._serve_timers()

    def _rooms(self, found: list[tuple[int, int]]) -> list[tuple[int, Call]]:
        wrote = select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP
        return [(fd, self._room[fd]) for fd, what in found if what & wrote and fd in self._room]

    def rest(self) -> None:
        """Nobody waits for a timer any more."""
        self._timers.clear()

    def intact(self) -> bool:
        """Whether the descriptors that we opened are still there, and still ours."""
        try:
            self._epoll.modify(self._bell, select.EPOLLIN)
        except (OSError, ValueError):  # or it is closed
            return False
        return True

    def forked(self) -> None:
        """We are the copy of one in another process, where somebody may have held the lock."""
        self._lock = threading.RLock()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # It may be a call of ours that closes us: nothing may come after it.
            self._ready.clear()
            self._room.clear()
            self._timers.clear()
            self._posted.clear()
            self._epoll.close()
            os.close(self._bell)

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    def _silence(self) -> None:
        os.eventfd_read(self._bell)
        while self._posted:
            call = self._posted.popleft()
            try:
                call()
            except BaseException:  # interrupted: it will be made in the next step
                if not self._closed:
                    self._posted.appendleft(call)
                    os.eventfd_write(self._bell, 1)
                raise

    def _serve_timers(self) -> None:
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
