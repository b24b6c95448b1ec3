"""Driving nacre's event loop from asyncio.

The asyncio loop watches the epoll descriptor of nacre's event loop, and has a timer for the next
deadline of nacre's event loop. When nacre's epoll descriptor is readable or a timer of nacre's
event loop is due, asyncio calls `drive`, and the supervisor then calls `set_timer` again.
"""

from typing import TYPE_CHECKING

from nacre.eventloop import Callback, EventLoop, now

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle


class AsyncioDriver:
    def __init__(self, host: "AbstractEventLoop", loop: EventLoop, drive: Callback) -> None:
        """`drive` is a function that runs the ready callbacks of nacre's event loop `loop` without
        waiting."""
        self._timer: TimerHandle | None = None
        self._loop = loop
        self._drive = drive
        self.host = host

    def start(self) -> None:
        self.host.add_reader(self._loop.fileno(), self._drive)

    def set_timer(self) -> None:
        """Make asyncio call `drive` at the next deadline of nacre's event loop. The supervisor
        calls `set_timer` after each step of nacre's event loop."""
        self._cancel_timer()
        due = self._loop.next_deadline()
        if due is not None:
            self._timer = self.host.call_later(max(0.0, due - now()), self._drive)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self._cancel_timer()
        if not self.host.is_closed():
            self.host.remove_reader(self._loop.fileno())
