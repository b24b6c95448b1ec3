"""Transports between MCP clients and nacre's MCP server: stdio, or HTTP with an access token.

The first SIGINT, SIGTERM or SIGHUP stops the running calls and then the server; a second signal
kills the commands of the calls.
"""

import asyncio
import contextlib
import hmac
import json
import os
import select
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any, Final

import anyio
import uvicorn
from anyio.abc import TaskGroup
from mcp.server.streamable_http import EventStore
from mcp.server.streamable_http_manager import (
    StreamableHTTPASGIApp,
    StreamableHTTPSessionManager,
)
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route

from nacre.frontends.mcp.auth import ListenAddress, bracket_ipv6
from nacre.frontends.mcp.recent_events import RecentEvents
from nacre.frontends.mcp.server import PRESENCE, McpServer, Presence

PATH: Final = "/mcp"
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_INTERVAL: Final = 0.02
# Milliseconds after which a client reconnects to a broken stream.
_RETRY_INTERVAL: Final = 1000
# Seconds that nacre waits for a client to reconnect to a broken stream; then nacre stops the
# client's commands.
_RESUME_TIME: Final = 10.0
# Protocol version in which a client can resume the stream of each request.
_RESUMABLE_VERSION: Final = "2025-11-25"
_EXIT_GRACE: Final = 2.0  # seconds that an exiting server gives the client to read the last replies

# The check of the headers Host and Origin in the MCP SDK is switched off, because it accepts any
# text as a port; `_AccessCheck` checks both headers.
_SDK_CHECKS_OFF: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def serve_stdio(shell: McpServer) -> int:
    wire = os.dup(0)  # duplicate of stdin, because the MCP SDK redirects descriptor 0
    async with _stop_on_signals(shell, _exit_stdio), anyio.create_task_group() as beside:
        beside.start_soon(_end_on_hangup, shell, wire)
        await shell.run_stdio_async()
        beside.cancel_scope.cancel()
    return 0


async def _end_on_hangup(shell: McpServer, wire: int) -> None:
    """Exit this process after the MCP client has disconnected from stdin.

    The MCP SDK stops at the end of input, but it waits forever for a client that has not read all
    replies.
    """
    with select.epoll() as gone:
        try:
            gone.register(wire, 0)  # event mask 0: epoll reports only a hang-up
        except PermissionError:  # stdin is a regular file, which never hangs up
            return
        await anyio.wait_readable(gone.fileno())
    while shell.busy:
        await anyio.sleep(_POLL_INTERVAL)
    await anyio.sleep(_EXIT_GRACE)
    os._exit(0)


async def _exit_stdio(number: int) -> None:
    """Exit this process after writing the last replies to the MCP client, or after a timeout.

    A return from `_exit_stdio` would not end the process, because a thread blocks in an
    uninterruptible read from stdin. A signal such as SIGTERM does not end the MCP server at once,
    because another thread may still write the last replies to a slow client.
    """
    threads = anyio.to_thread.current_default_thread_limiter()
    with anyio.move_on_after(_EXIT_GRACE):
        # Give the server time to pass the last replies to the thread that writes them to the
        # client.
        await anyio.sleep(5 * _POLL_INTERVAL)
        while threads.borrowed_tokens > 1:
            await anyio.sleep(_POLL_INTERVAL)
    sys.stderr.flush()
    os._exit(128 + number)


async def serve_http(
    shell: McpServer, where: ListenAddress, ready: Callable[[str], None]
) -> int | None:
    """Serve MCP over HTTP and return the exit code, or None if the server's address cannot be used.

    `ready` is a callback that gets the URL of the server as soon as the server accepts connections.
    """
    manager = _SessionManager(
        app=shell.lowlevel_server,
        retry_interval=_RETRY_INTERVAL,
        security_settings=_SDK_CHECKS_OFF,
    )
    app = Starlette(
        routes=[Route(PATH, endpoint=StreamableHTTPASGIApp(manager))],
        lifespan=lambda _: manager.run(),
    )
    config = uvicorn.Config(
        _AccessCheck(app, where),
        host=where.host,
        port=where.port,
        log_level="critical",
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=int(_EXIT_GRACE),
    )
    server, codes = _Uvicorn(config), [0]

    async def leave(number: int) -> None:
        codes.append(128 + number)
        server.should_exit = True

    async with _stop_on_signals(shell, leave), anyio.create_task_group() as beside:
        beside.start_soon(_report_ready, server, where, ready)
        try:
            await server.serve()
        except SystemExit:
            return None
        finally:
            beside.cancel_scope.cancel()
    return codes[-1]


class _SessionManager(StreamableHTTPSessionManager):
    @property
    def event_store(self) -> EventStore:
        """New event store at each read. The SDK reads this property once per session; with a plain
        attribute, all sessions would share one store."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        del given


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Disable uvicorn's signal handling, which would end the process before the running
        commands have ended; `_stop_on_signals` handles the signals."""
        yield


async def _report_ready(
    server: uvicorn.Server, where: ListenAddress, ready: Callable[[str], None]
) -> None:
    while not server.started:
        await anyio.sleep(_POLL_INTERVAL)
    port = server.servers[0].sockets[0].getsockname()[1]
    ready(f"http://{bracket_ipv6(where.host)}:{port}{PATH}")


class _AccessCheck:
    """ASGI middleware that checks the Host header, the Origin header and the access token of each
    request, and sets an event when the client has disconnected and did not reconnect in time."""

    def __init__(self, app: App, where: ListenAddress, resume_time: float = _RESUME_TIME) -> None:
        """`resume_time` is the number of seconds within which a client may reconnect."""
        self._app = app
        self._where = where
        self._token = None if where.token is None else where.token.encode()
        self._resume_time = resume_time
        self._open_streams: Counter[str] = Counter()  # number of open GET streams, by session id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        wrong = self._find_problem(scope)
        if wrong is not None:
            return await _send_error(send, *wrong)
        presence = scope[PRESENCE] = Presence()
        session = next(iter(_header(scope, b"mcp-session-id")), "")
        resumable = bool(session) and _is_resumable(scope)
        is_stream = scope["method"] == "GET" and bool(session)
        complete = False

        async def receive_watched() -> MutableMapping[str, Any]:
            message = await receive()
            if message["type"] == "http.disconnect" and not complete:
                if resumable and not is_stream:
                    self._set_after_resume_time(presence, session)
                else:
                    presence.gone.set()
            return message

        async def send_watched(message: MutableMapping[str, Any]) -> None:
            nonlocal complete
            await send(message)
            complete = message["type"] == "http.response.body" and not message.get("more_body")

        self._open_streams[session] += is_stream
        try:
            await self._app(scope, receive_watched, send_watched)
        finally:
            self._open_streams[session] -= is_stream
            self._open_streams += Counter()  # removes the sessions without an open stream

    def _set_after_resume_time(self, presence: Presence, session: str) -> None:
        """Set the event `presence.gone` when the session has had no open stream for `resume_time`
        seconds. The commands of a client that reconnects within `resume_time` seconds continue."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._resume_time

        def check() -> None:
            nonlocal deadline
            if self._open_streams[session]:
                deadline = loop.time() + self._resume_time
            if loop.time() >= deadline:
                presence.gone.set()
            elif not presence.answered:
                loop.call_later(self._resume_time / 20, check)

        check()

    def _find_problem(self, scope: Scope) -> tuple[int, str] | None:
        """Return the HTTP status and the error message for a forbidden request, or None for an
        allowed one."""
        hosts, pages = _header(scope, b"host"), _header(scope, b"origin")
        if len(hosts) != 1 or not self._where.allows_host(hosts[0]):
            return 421, "this Host is not allowed; --allow-host NAME adds one"
        if len(pages) > 1 or not all(map(self._where.allows_origin, pages)):
            return 403, "this Origin is not allowed; --allow-origin ORIGIN adds one"
        if self._token is not None and not self._has_token(_header(scope, b"authorization")):
            return 401, "a token is required: Authorization: Bearer TOKEN"
        return None

    def _has_token(self, given: list[str]) -> bool:
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        known = hmac.compare_digest(token.strip().encode(), self._token or b"")
        return scheme.lower() == "bearer" and known


def _is_resumable(scope: Scope) -> bool:
    versions = _header(scope, b"mcp-protocol-version")
    return len(versions) == 1 and versions[0] == _RESUMABLE_VERSION


def _header(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


async def _send_error(send: Send, status: int, problem: str) -> None:
    body = json.dumps({"error": problem}).encode() + b"\n"
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="nacre"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def _stop_on_signals(
    shell: McpServer, leave: Callable[[int], Awaitable[None]]
) -> AsyncIterator[None]:
    """Context manager in which a signal such as SIGTERM stops the running tool calls and then calls
    `leave`, which ends the server."""
    async with anyio.create_task_group() as beside:
        beside.start_soon(_on_signal, shell, beside, leave)
        try:
            yield
        finally:
            beside.cancel_scope.cancel()


async def _on_signal(
    shell: McpServer, beside: TaskGroup, leave: Callable[[int], Awaitable[None]]
) -> None:
    heeded = [each for each in _STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
    first = True
    with anyio.open_signal_receiver(*heeded) as received:
        async for number in received:
            shell.stop()
            if first:
                beside.start_soon(_stop_and_exit, shell, leave, number)
            first = False


async def _stop_and_exit(
    shell: McpServer, leave: Callable[[int], Awaitable[None]], number: int
) -> None:
    while shell.busy:
        await anyio.sleep(_POLL_INTERVAL)
    await leave(number)
