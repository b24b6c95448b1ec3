"""MCP server of `nacre mcp`: offers the tools of one contract (tool dialect) to MCP clients.

The MCP server gets the list of tools, the replies to calls and the list of runs from a `Tool`. The
class `McpServer` adds what is specific to MCP: progress while a command runs, cancellation, run
output as resources, and completion of run ids. The module `run_notifier` tells clients about the
ends of runs. The module `transport` connects the MCP server to
its clients, over stdio or HTTP. The user's guide to the MCP server is docs/guide/mcp.md.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
from mcp import MCPError
from mcp import types as wire
from mcp.server import MCPServer
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context

from nacre import __version__
from nacre.contracts.contract import Reply
from nacre.frontends.mcp.run_notifier import RunNotifier, connection_of
from nacre.frontends.run_json import OutputPart, PartTooLarge, read_part
from nacre.model.cancel import CancelToken
from nacre.model.events import Chunk, Event, Listening
from nacre.model.plan import KIB
from nacre.runs.handle import RunHandle
from nacre.store import stored_run
from nacre.store.stored_run import NoSuchRun
from nacre.text.clean import (
    as_displayed,
    decode,
    drop_partial_end,
    drop_partial_start,
    looks_binary,
    strip_escapes,
)
from nacre.tool.detached_run import DetachedRun
from nacre.tool.tool import Tool

# Key under which the ASGI scope of an HTTP request holds its `Presence`.
PRESENCE: Final = "nacre.presence"
# Number of bytes at the end of a command's output that are kept, in order to find its last line.
_LINE: Final = 4 * KIB
_SHOWN: Final = 200  # maximum characters of a progress line or of a resource's title
_LISTED: Final = 50  # maximum number of runs in the list of MCP resources
_SAMPLE: Final = 8 * KIB
_TITLES: Final = {"bash": "Run a shell command", "job": "See to running commands"}
_RANGES: Final = ("since", "from", "to", "lines")
_URI: Final = re.compile(r"artifact://(?P<run>r?[0-9]{1,18})/?(?:\?(?P<parts>[^#?\s]*))?")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class Presence:
    """Whether the client of an HTTP request still waits for the response."""

    def __init__(self) -> None:
        self.gone = anyio.Event()  # set when the client has disconnected and does not come back
        self.answered = False  # whether the request has its response


class McpServer(MCPServer[Any]):
    def __init__(self, tool: Tool, *, often: float = 1.0, seldom: float = 5.0) -> None:
        """`often` and `seldom` are the seconds between two progress messages: `often` while the
        last line of the output changes, `seldom` while it stays the same."""
        super().__init__(
            "nacre",
            title="nacre",
            description="The shell tool for language-model agents",
            instructions=f"Runs shell commands in {decode(tool.cwd)}. The whole output of run r17 "
            "is the resource artifact://17, also after this session.",
            version=__version__,
            log_level="WARNING",
            subscriptions=False,
        )
        self._stopping = False
        self._tool = tool
        # Names of the connections of HTTP clients.
        self._readers: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()
        self._reader_numbers = itertools.count(1)
        self._often, self._seldom = often, seldom
        self._live: set[CancelToken] = set()
        self.completion()(self._complete)  # type: ignore[no-untyped-call]
        self._notifier = RunNotifier(self._find_run)
        self._notifier.register(self._lowlevel_server)
        # The SDK adds handlers for prompts to every server, and therefore declares prompts. Without
        # the handlers, the SDK declares no prompts.
        for method in ("prompts/list", "prompts/get"):
            del self._lowlevel_server._request_handlers[method]

    @property
    def lowlevel_server(self) -> Server[Any]:
        return self._lowlevel_server

    # MCP tools.

    async def list_tools(self) -> list[wire.Tool]:
        return [
            wire.Tool(
                name=spec["name"],
                title=_TITLES[spec["name"]],
                description=spec["description"],
                input_schema=spec["inputSchema"],
                output_schema=spec["outputSchema"],
                annotations=wire.ToolAnnotations(
                    read_only_hint=False, destructive_hint=True, open_world_hint=True
                ),
            )
            for spec in self._tool.specs("mcp")
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> wire.CallToolResult:
        cancel, news = CancelToken(), _LastLine()
        wants = context is not None and _wants_progress(context)
        listening = Listening(listener=news.on_event, every=self._often / 2, buffer=_LINE)
        self._live.add(cancel)
        if self._stopping:
            cancel.cancel()

        def on_detach(run: DetachedRun) -> None:
            if context is not None:
                self._notifier.follow_job(run, context.request_context.session)

        async def answered() -> Reply | Exception:
            try:
                return await self._tool.acall(
                    arguments,
                    tool=name,
                    listen=listening if wants else None,
                    cancel=cancel,
                    on_detach=on_detach,
                    reader=self._reader_of(context),
                )
            except Exception as error:  # noqa: BLE001 - raised again outside of the task group
                return error

        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(_wait_for_cancel, cancel, context)
                if context is not None and wants:
                    beside.start_soon(self._send_progress, context, news)
                # The tool call runs in a scope that anyio does not cancel, because a cancelled
                # command may still run for its grace (time between TERM and KILL). The task
                # `_wait_for_cancel` receives the cancellation of a tool call and cancels the
                # command.
                with anyio.CancelScope(shield=True):
                    reply = await answered()
                beside.cancel_scope.cancel()
        finally:
            self._live.discard(cancel)
        if isinstance(reply, Exception):
            raise reply
        return _tool_result(reply)

    def _reader_of(self, context: Context[Any, Any] | None) -> str:
        """Return a name for the client's connection, so that replies show each client the output
        that is new to it. A server on stdio has one client. Over HTTP, a client of the protocol of
        2026-07-28 has a new connection for each request, so all output is new to it."""
        if context is None or context.request_context.request is None:
            return ""
        connection = connection_of(context.request_context.session)
        if connection not in self._readers:
            self._readers[connection] = f"connection {next(self._reader_numbers)}"
        return self._readers[connection]

    async def _send_progress(self, context: Context[Any, Any], news: "_LastLine") -> None:
        began = meta = anyio.current_time()
        last_line = ""
        while True:
            await anyio.sleep(self._often)
            moment, line = anyio.current_time(), news.line
            if line != last_line or moment - meta >= self._seldom:
                meta, last_line = moment, line
                lasts = moment - began
                message = f"{lasts:.0f} s: {line}" if line else f"running for {lasts:.0f} s"
                with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await context.report_progress(round(lasts, 1), None, message)

    def stop(self) -> None:
        """Cancel all tool calls, also those that start later; a second `stop` kills their
        commands."""
        self._stopping = True
        for cancel in list(self._live):
            cancel.cancel()

    @property
    def busy(self) -> bool:
        return bool(self._live)

    # Methods for MCP resources: each resource is the output of a run.

    async def list_resources(self) -> list[wire.Resource]:
        return await anyio.to_thread.run_sync(self._resources)

    def _resources(self) -> list[wire.Resource]:
        return [
            wire.Resource(
                uri=f"artifact://{run.id.removeprefix('r')}",
                name=run.id,
                title=" ".join(run.command.split())[:_SHOWN],
                description=f"The output of {run.id} ({run.state})",
                mime_type="text/plain",
            )
            for run in self._tool.runs(_LISTED)
        ]

    async def list_resource_templates(self) -> list[wire.ResourceTemplate]:
        return [
            wire.ResourceTemplate(
                uri_template="artifact://{run}",
                name="output",
                title="The output of a run",
                description="All of it, up to 1 MiB. run is its number: 17, or r17.",
                mime_type="text/plain",
            ),
            wire.ResourceTemplate(
                uri_template="artifact://{run}{?from,to,lines,since}",
                name="part",
                title="A part of the output of a run",
                description="from and to: lines, counted from 1; lines: number of last lines; "
                "since: from this byte on, up to 1 MiB (_meta has the cursor to go on with).",
                mime_type="text/plain",
            ),
        ]

    async def read_resource(
        self, uri: object, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents]:
        del context
        run, wanted = _parse_uri(str(uri))
        try:
            part = await anyio.to_thread.run_sync(self._read_part, run, wanted)
        except (NoSuchRun, PartTooLarge, ValueError, OSError) as error:
            raise _invalid_uri(str(error), uri) from None
        return [_resource_contents(part)]

    def _find_run(self, uri: str) -> RunHandle:
        """Return the run of a resource. Raises MCPError."""
        try:
            return self._tool.run(_parse_uri(uri)[0])
        except (LookupError, OSError) as error:
            raise _invalid_uri(str(error), uri) from None

    def _read_part(self, run: str, wanted: Mapping[str, int]) -> OutputPart:
        return read_part(
            stored_run.find_run(stored_run.parse_run_id(run), self._tool.workspace),
            since=wanted.get("since"),
            first=wanted.get("from"),
            last=wanted.get("to"),
            lines=wanted.get("lines"),
        )

    async def _complete(
        self, ref: object, argument: wire.CompletionArgument, context: object
    ) -> wire.Completion | None:
        del context
        if not isinstance(ref, wire.ResourceTemplateReference) or argument.name != "run":
            return None
        runs = await anyio.to_thread.run_sync(self._tool.runs, 100)
        known = [run.id.removeprefix("r") for run in runs]
        typed = argument.value.removeprefix("r")
        values = [number for number in known if number.startswith(typed)]
        return wire.Completion(values=values[:100], total=len(values))


class _LastLine:
    """Last line that a command has printed; the listener thread of the command updates it."""

    def __init__(self) -> None:
        self._tail = b""

    def on_event(self, event: Event) -> None:
        if isinstance(event, Chunk):
            self._tail = (self._tail + event.data)[-_LINE:]

    @property
    def line(self) -> str:
        text = as_displayed(strip_escapes(decode(drop_partial_end(drop_partial_start(self._tail)))))
        lines = [line.strip() for line in text.splitlines()]
        return next((line[:_SHOWN] for line in reversed(lines) if line), "")


def _wants_progress(context: Context[Any, Any]) -> bool:
    meta: Mapping[str, Any] | None = context.request_context.meta
    return meta is not None and meta.get("progress_token") is not None


async def _wait_for_cancel(cancel: CancelToken, context: Context[Any, Any] | None) -> None:
    """Cancel the command of a tool call when the MCP client disconnects, or when the task that runs
    `_wait_for_cancel` is cancelled; do nothing to a call that already has its reply."""
    request = None if context is None else context.request_context.request
    presence: Presence | None = getattr(request, "scope", {}).get(PRESENCE)
    try:
        await (anyio.sleep_forever() if presence is None else presence.gone.wait())
    finally:
        cancel.cancel()
        if presence is not None:
            presence.answered = True


def _tool_result(reply: Reply) -> wire.CallToolResult:
    return wire.CallToolResult(
        content=[wire.TextContent(type="text", text=reply.text)],
        structured_content=reply.details,
        is_error=reply.is_error,
    )


def _parse_uri(uri: str) -> tuple[str, dict[str, int]]:
    """Parse a URI such as `artifact://17?from=1&to=9` into the run id and the requested part of the
    run's output. Raises MCPError."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise _invalid_uri(
            "resources are artifact://RUN, with ?from=A&to=B, ?lines=N or ?since=BYTE", uri
        )
    wanted: dict[str, int] = {}
    for part in (found["parts"] or "").split("&") if found["parts"] else ():
        name, _, value = part.partition("=")
        if name not in _RANGES or name in wanted or not _NUMBER.fullmatch(value):
            raise _invalid_uri(
                f"{part} is not a range; give {', '.join(_RANGES)} = number, each at most once", uri
            )
        wanted[name] = int(value)
    if wanted.get("to", wanted.get("from", 1)) < wanted.get("from", 1):
        raise _invalid_uri("to is before from", uri)
    return found["run"], wanted


def _invalid_uri(problem: str, uri: object) -> MCPError:
    return MCPError(wire.INVALID_PARAMS, f"{uri}: {problem}", {"uri": str(uri)})


def _resource_contents(part: OutputPart) -> ReadResourceContents:
    meta = {"nacre/bytes": part.size, "nacre/cursor": part.cursor, "nacre/over": part.complete}
    if looks_binary(part.data[:_SAMPLE]):
        return ReadResourceContents(part.data, "application/octet-stream", meta)
    return ReadResourceContents(decode(part.data), "text/plain", meta)
