"""How MCP clients reach the server: stdio, or HTTP on this machine, behind a token.

A signal ends what is being waited for, and then the server; another one kills it.
"""

import contextlib
import hmac
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any, Final

import anyio
import uvicorn
from anyio.abc import TaskGroup
from mcp.server.transport_security import TransportSecuritySettings

from nacre.fronts.mcp import GONE, Shell
from nacre.fronts.mcp_door import Address, bracketed

PATH: Final = "/mcp"
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOMENT: Final = 0.02

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def over_stdio(shell: Shell) -> int:
    async with _ends_with_signals(shell):
        await shell.run_stdio_async()
    return 0


async def over_http(shell: Shell, where: Address, ready: Callable[[str], None]) -> int:
    """`ready` is told the URL when it can be called."""
    app = shell.streamable_http_app(
        streamable_http_path=PATH, transport_security=_security(where), host=where.host
    )
    config = uvicorn.Config(
        _Door(app, where.token),
        host=where.host,
        port=where.port,
        log_level="error",
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=0,
    )
    server = _Uvicorn(config)
    async with _ends_with_signals(shell), anyio.create_task_group() as beside:
        beside.start_soon(_say_when_ready, server, where, ready)
        try:
            await server.serve()
        except SystemExit:  # it has said why, on stderr
            return 1
        finally:
            beside.cancel_scope.cancel()
    return 0


def _security(where: Address) -> TransportSecuritySettings:
    return TransportSecuritySettings(
        allowed_hosts=[each for name in where.names for each in (name, f"{name}:*")],
        allowed_origins=[
            *(each for page in where.pages for each in (page, f"{page}:*")),
            *where.origins,
        ],
    )


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: its own way ends the process before what runs has ended."""
        yield


async def _say_when_ready(
    server: uvicorn.Server, where: Address, ready: Callable[[str], None]
) -> None:
    while not server.started:
        await anyio.sleep(_MOMENT)
    port = server.servers[0].sockets[0].getsockname()[1]
    ready(f"http://{bracketed(where.host)}:{port}{PATH}")


class _Door:
    """Lets in who has the token, and notes when a client has hung up."""

    def __init__(self, app: App, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if not self._known(scope):
            return await _turned_away(send)
        gone = scope[GONE] = anyio.Event()

        async def heard() -> MutableMapping[str, Any]:
            message = await receive()
            if message["type"] == "http.disconnect":
                gone.set()
            return message

        return await self._app(scope, heard, send)

    def _known(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


async def _turned_away(send: Send) -> None:
    body = b'{"error": "this server wants its token: Authorization: Bearer TOKEN"}\n'
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b'Bearer realm="nacre"'),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def _ends_with_signals(shell: Shell) -> AsyncIterator[None]:
    async with anyio.create_task_group() as beside:
        beside.start_soon(_heed, shell, beside)
        try:
            yield
        finally:
            beside.cancel_scope.cancel()


async def _heed(shell: Shell, beside: TaskGroup) -> None:
    heeded = [each for each in _STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
    first = True
    with anyio.open_signal_receiver(*heeded) as received:
        async for number in received:
            shell.stop()
            if first:
                beside.start_soon(_leave, shell, number)
            first = False


async def _leave(shell: Shell, number: int) -> None:
    """Not by returning: a thread may still wait for the next line of stdin."""
    while shell.busy:
        await anyio.sleep(_MOMENT)
    await anyio.sleep(_MOMENT)  # the last replies are on their way
    sys.stderr.flush()
    os._exit(128 + number)
