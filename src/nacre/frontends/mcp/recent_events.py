"""Recent events of one MCP session over HTTP, with which a client resumes a broken stream."""

from collections import deque
from typing import Final

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.types import JSONRPCMessage
from msgspec import Struct

from nacre.model.plan import MIB

_MAX_EVENTS: Final = 1000
_MAX_SIZE: Final = 2 * MIB


class _Event(Struct, frozen=True, kw_only=True):
    id: EventId
    stream: StreamId
    message: JSONRPCMessage | None  # None: an event without a message, with which a stream begins
    size: int


class RecentEvents(EventStore):
    """Store of the most recent events of one session; the oldest events are dropped, but never the
    last one."""

    def __init__(self, max_events: int = _MAX_EVENTS, max_size: int = _MAX_SIZE) -> None:
        self._max_events = max_events
        self._max_size = max_size
        self._events: deque[_Event] = deque()
        self._size = 0
        self._last = 0

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self._last += 1
        size = 0 if message is None else len(message.model_dump_json())
        event = _Event(id=str(self._last), stream=stream_id, message=message, size=size)
        self._events.append(event)
        self._size += size
        while len(self._events) > 1 and (
            len(self._events) > self._max_events or self._size > self._max_size
        ):
            self._size -= self._events.popleft().size
        return event.id

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        last = next((each for each in self._events if each.id == last_event_id), None)
        if last is None:
            return None
        # The server may store further events of the stream while an event is being sent.
        sent = int(last.id)
        while (event := self._next_event(last.stream, sent)) is not None:
            sent = int(event.id)
            if event.message is not None:
                await send_callback(EventMessage(event.message, event.id))
        return last.stream

    def _next_event(self, stream: StreamId, after: int) -> _Event | None:
        return next(
            (each for each in self._events if each.stream == stream and int(each.id) > after), None
        )
