"""Benchmark of the time that a front end adds to a call.

The same command runs alternately through the tool in this process and through the front end. For
MCP, the client and the server of the MCP SDK take most of the added time.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import nacre
from bench.result import Result, spread

NACRE = Path(sys.executable).parent / "nacre"
PAIRS = 300
GIVEN = {"command": "echo hi"}


def measure(program: Path) -> Iterator[Result]:
    del program  # `program` is unused: the reference is the tool in this process
    with nacre.Tool("harness") as tool, nacre.Tool("pi") as pi:
        yield from _rpc(tool, pi)
        yield anyio.run(_stdio, tool)
        yield anyio.run(_http, tool)


def _result(promise: str, limit: float, pairs: list[tuple[float, float]]) -> Result:
    above = [through - alone for alone, through in pairs]
    detail = f"the tool alone {median(alone for alone, _ in pairs):.2f} ms; {spread(above)}"
    return Result(promise, median(above), limit, "ms", "at most", detail)


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1000


def _rpc(tool: nacre.Tool, pi: nacre.Tool) -> Iterator[Result]:
    process = subprocess.Popen([NACRE, "rpc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    source, sink = process.stdout, process.stdin.fileno()

    def asked(**message: Any) -> Callable[[], None]:
        line = json.dumps(message).encode() + b"\n"

        def ask() -> None:
            os.write(sink, line)
            while b'"success":true' not in source.readline():
                continue

        return ask

    def alone() -> object:
        return tool.call(GIVEN)

    def alone_of_pi() -> object:
        return pi.call(GIVEN)

    call = asked(type="call", contract="harness", arguments=GIVEN)
    quiet, bash = asked(type="bash", stream=False, **GIVEN), asked(type="bash", **GIVEN)
    for promise, limit, here, ask in (
        ("RPC: call", 0.3, alone, call),
        ("RPC: bash", 0.3, alone_of_pi, quiet),
        ("RPC: bash, streaming", 0.6, alone_of_pi, bash),
    ):
        for _ in range(20):
            here()
            ask()
        pairs = [(_timed(here), _timed(ask)) for _ in range(PAIRS)]
        yield _result(f"{promise}, above the tool", limit, pairs)
    process.communicate()


async def _stdio(tool: nacre.Tool) -> Result:
    server = StdioServerParameters(
        command=str(NACRE), args=["mcp", "--contract", "harness"], env=dict(os.environ)
    )
    async with Client(server) as client:
        return await _mcp("MCP on stdio", 3.0, tool, client)


async def _http(tool: nacre.Tool) -> Result:
    words = [str(NACRE), "mcp", "--contract", "harness", "--http", "0", "--no-token"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = re.search(r"http://\S+/mcp", process.stderr.readline())
    assert url is not None
    async with (
        httpx2.AsyncClient(timeout=60) as http,
        Client(streamable_http_client(url[0], http_client=http)) as client,
    ):
        result = await _mcp("MCP on HTTP", 6.0, tool, client)
    process.terminate()
    process.communicate()
    return result


async def _mcp(promise: str, limit: float, tool: nacre.Tool, client: Client) -> Result:
    async def call() -> object:
        return await client.call_tool("bash", GIVEN)

    await call()
    pairs = []
    for _ in range(PAIRS):
        alone = _timed(lambda: tool.call(GIVEN))
        pairs.append((alone, await _awaited(call)))
    return _result(f"{promise}, above the tool", limit, pairs)


async def _awaited(call: Callable[[], Awaitable[object]]) -> float:
    begin = time.perf_counter()
    await call()
    return (time.perf_counter() - begin) * 1000
