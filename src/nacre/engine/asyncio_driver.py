"""Driving nacre's event loop from asyncio.

asyncio watches the epoll descriptor and has a timer for the next deadline.

descriptor is readable, or the deadline passes -> drive() -> set_timer()
"""

from typing import TYPE_CHECKING

from nacre.eventloop import Callback, EventLoop, now

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle


class AsyncioDriver:
    def __init__(self, host: "AbstractEventLoop", loop: EventLoop, drive: Callback) -> None:
        """`drive` serves the ready events of `loop` without waiting."""
        self._timer: TimerHandle | None = None
        self._loop = loop
        self._drive = drive
        self.host = host

    def start(self) -> None:
        self.host.add_reader(self._loop.fileno(), self._drive)

    def set_timer(self) -> None:
        """Schedule a call of `drive` for the next deadline of the event loop. The supervisor calls
        `set_timer` after each step."""
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
