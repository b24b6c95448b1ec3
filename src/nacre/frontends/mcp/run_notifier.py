"""Notifications of the MCP server about the ends of runs.

When a run ends, the MCP resource with its output is complete. The MCP server then sends
`notifications/resources/updated` to the clients that have subscribed to the resource, and a log
message to the client whose call has started the run. Clients of the protocol of 2025-11-25 and
before subscribe by `resources/subscribe`; later clients subscribe by `subscriptions/listen`, and
get no log messages outside of a request.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
from mcp import types as wire
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.types import LoggingLevel

from nacre.runs.handle import RunHandle
from nacre.store.stored_run import NoSuchRun
from nacre.tool.detached_run import DetachedRun, JobEnd

# Last protocol version that begins with a handshake (`initialize`), and that has
# `resources/subscribe` and log messages outside of a request.
_LAST_WITH_HANDSHAKE: Final = "2025-11-25"
_LEVELS: Final[tuple[LoggingLevel, ...]] = (
    *("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"),
)
_LEVEL_OF: Final[dict[str, LoggingLevel]] = {
    "completed": "info",
    "cancelled": "notice",
    "failed": "warning",
}
_MAX_TEXT: Final = 2000  # maximum number of characters of a reply in a log message

Context = ServerRequestContext[Any, Any]


class _Client:
    """Log level and subscriptions of one client whose protocol version is 2025-11-25 or earlier."""

    def __init__(self) -> None:
        self.level: LoggingLevel = "debug"
        self.subscribed: dict[str, str] = {}  # maps the URI of a resource to the id of its run


class RunNotifier:
    def __init__(self, find_run: Callable[[str], RunHandle]) -> None:
        """`find_run` returns the run of a resource by the URI of the resource, and raises MCPError
        for a URI without a run."""
        self._find_run = find_run
        self._bus = InMemorySubscriptionBus()
        self._serve_listen = ListenHandler(self._bus)
        self._clients: WeakKeyDictionary[Connection, _Client] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()  # tasks that wait for the end of a run
        self._followed: Counter[str] = Counter()  # number of these tasks, by run id
        # URIs of resources that clients of the protocol of 2026-07-28 listen to, by run id.
        self._listened: dict[str, set[str]] = {}

    def register(self, server: Server[Any]) -> None:
        """Add the handlers of the requests with which clients ask for notifications."""
        add = server.add_request_handler
        add("resources/subscribe", wire.SubscribeRequestParams, self._subscribe)
        add("resources/unsubscribe", wire.UnsubscribeRequestParams, self._unsubscribe)
        add("logging/setLevel", wire.SetLevelRequestParams, self._set_level)
        add("subscriptions/listen", wire.SubscriptionsListenRequestParams, self._listen)

    def follow_job(self, run: DetachedRun, session: ServerSession) -> None:
        """Wait in the background for the end of the detached run `run`; then notify the subscribed
        clients, and send a log message to the client that started the run."""
        is_first = run.run not in self._followed

        async def follow() -> None:
            end = await run.wait_for_end()
            if is_first:
                await self._notify_updated(run.run)
            if end is not None:
                await self._send_log_message(session, end)

        self._start(run.run, follow)

    async def _follow_run(self, uri: str) -> str:
        """Wait in the background for the end of the run whose resource is `uri`, to notify the
        subscribed clients; return the id of the run. Raises MCPError if there is no such run."""
        run = await anyio.to_thread.run_sync(self._find_run, uri)

        async def follow() -> None:
            await run.await_()
            await self._notify_updated(run.id)

        if run.ending is None and run.id not in self._followed:
            self._start(run.id, follow)
        return run.id

    def _start(self, name: str, follow: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            with suppress(NoSuchRun, OSError):
                await follow()

        def on_done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._followed[name] -= 1
            if not self._followed[name]:
                del self._followed[name]

        self._followed[name] += 1
        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(on_done)

    async def _notify_updated(self, name: str) -> None:
        for uri in self._listened.pop(name, ()):
            await self._bus.publish(ResourceUpdated(uri=uri))
        for connection, client in list(self._clients.items()):
            for uri, run in list(client.subscribed.items()):
                if run == name:
                    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                        await connection.send_resource_updated(uri)

    async def _send_log_message(self, session: ServerSession, end: JobEnd) -> None:
        level = _LEVEL_OF[end.state]
        connection = connection_of(session)
        known = self._clients.get(connection)
        too_low = known is not None and _LEVELS.index(level) < _LEVELS.index(known.level)
        if session.protocol_version > _LAST_WITH_HANDSHAKE or too_low:
            return
        data = {
            "run": end.run,
            "state": end.state,
            "resource": f"artifact://{end.run.removeprefix('r')}",
            "text": end.reply.text[-_MAX_TEXT:],
        }
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await connection.notify(
                "notifications/message", {"level": level, "logger": "nacre", "data": data}
            )

    # Handlers of requests.

    async def _subscribe(self, context: Context, given: wire.SubscribeRequestParams) -> Any:
        uri = str(given.uri)
        self._client(context).subscribed[uri] = await self._follow_run(uri)
        return wire.EmptyResult()

    async def _unsubscribe(self, context: Context, given: wire.UnsubscribeRequestParams) -> Any:
        self._client(context).subscribed.pop(str(given.uri), None)
        return wire.EmptyResult()

    async def _set_level(self, context: Context, given: wire.SetLevelRequestParams) -> Any:
        self._client(context).level = given.level
        return wire.EmptyResult()

    async def _listen(
        self, context: Context, given: wire.SubscriptionsListenRequestParams
    ) -> wire.SubscriptionsListenResult:
        for uri in given.notifications.resource_subscriptions or ():
            name = await self._follow_run(str(uri))
            if name in self._followed:  # an ended run has no further notification
                self._listened.setdefault(name, set()).add(str(uri))
        return await self._serve_listen(context, given)

    def _client(self, context: Context) -> _Client:
        return self._clients.setdefault(connection_of(context.session), _Client())


def connection_of(session: ServerSession) -> Connection:
    """Return the connection of a request's session object. The SDK makes a new session object for
    each request, and has no public name for the connection behind it."""
    return session._connection
