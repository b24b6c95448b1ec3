"""Tests of `nacre mcp` with the client of the MCP SDK, over stdio and HTTP.

Several tests run in both eras of MCP: the legacy protocol of 2025-11-25 and the protocol of
2026-07-28.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import anyio
import httpx2
import jsonschema
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp import types as wire
from mcp.client.session import LoggingFnT, MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.server.streamable_http import EventMessage
from mcp.server.subscriptions import ResourceUpdated

import nacre
from nacre.contracts import reply_schemas
from nacre.frontends.mcp.recent_events import RecentEvents
from nacre.frontends.mcp.server import McpServer
from tests.support import case_table, wardens
from tests.support.command_line import PROGRAM
from tests.support.contract_rows import ROWS
from tests.support.helpers import WAIT_FOR_GO, alive, eventually, named

pytestmark = pytest.mark.slow

ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])
# The protocol of 2026-07-28 has neither `resources/subscribe` nor `logging/setLevel`.
DEPRECATED = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
Talk = Callable[[Client], Coroutine[Any, Any, None]]


def over_stdio(talk: Talk, *words: str, era: str = "auto", cwd: Path | None = None) -> None:
    """Start a server process, connect a client over stdio, and run `talk` with the client."""

    async def run() -> None:
        server = StdioServerParameters(
            command=PROGRAM, args=["mcp", *words], cwd=cwd, env=dict(os.environ)
        )
        with anyio.fail_after(60):
            async with Client(server, mode=era) as client:
                await talk(client)

    anyio.run(run)


def in_process(
    talk: Talk,
    cwd: Path,
    *,
    era: str = "legacy",
    contract: str = "nacre",
    often: float = 1.0,
    max_wait: float = 45,
    on_log: LoggingFnT | None = None,
    on_message: MessageHandlerFnT | None = None,
    **options: object,
) -> None:
    """Run `talk` with a client of a server in this process. Starting a server process would take
    a second."""

    async def run() -> None:
        with (
            nacre.Tool(contract, cwd=cwd, max_wait=max_wait, options=options) as tool,
            anyio.fail_after(60),
        ):
            async with Client(
                McpServer(tool, often=often),
                mode=era,
                logging_callback=on_log,
                message_handler=on_message,
            ) as client:
                await talk(client)

    anyio.run(run)


def text(result: wire.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, wire.TextContent)
    return block.text


def details(result: wire.CallToolResult) -> dict[str, Any]:
    found: dict[str, Any] = result.structured_content
    return found


@ERAS
def test_tools_with_output_schemas_and_structured_content(era: str, tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        bash, job = (await client.list_tools()).tools
        assert (bash.name, job.name) == ("bash", "job")
        assert bash.output_schema == reply_schemas.NACRE_REPLY
        result = await client.call_tool("bash", {"command": "echo hi; exit 3"})
        assert text(result) == "hi\n[exit code 3]"
        assert not result.is_error  # a failed command is a normal result
        assert (details(result)["state"], details(result)["exit_code"]) == ("exited", 3)
        result = await client.call_tool("bash", {"command": "rm -rf /"})
        assert result.is_error
        assert details(result)["refusal"]["rule"] == "disk.remove"
        result = await client.call_tool("sing", {})
        assert result.is_error
        assert "there is no tool 'sing'" in text(result)
        assert client.session.protocol_version == (
            "2025-11-25" if era == "legacy" else "2026-07-28"
        )

    over_stdio(talk, era=era, cwd=tmp_path)


async def _follow_run(client: Client) -> None:
    """Write to a run and wait for it: each reply shows what is new since the last one."""

    async def job(**arguments: Any) -> str:
        return text(await client.call_tool("job", arguments))

    command = "echo a; while read -r l; do echo got $l; done"
    run = details(await client.call_tool("bash", {"command": command, "interactive": True}))["run"]
    for number in "12":
        said = await job(action="write", run=run, text=f"{number}\n")
        assert said.startswith(f"got {number}\n[")
    assert (await job(action="wait", run=run, wait=0)).startswith("[nothing new since line 3]\n")
    assert (await job(action="read", run=run)).startswith("a\ngot 1\ngot 2\n")
    await job(action="signal", run=run, signal="KILL")


@ERAS
def test_each_reply_shows_what_is_new(era: str, tmp_path: Path) -> None:
    over_stdio(_follow_run, era=era, cwd=tmp_path)


@pytest.mark.xdist_group("http")
def test_http_shows_what_is_new(server: "Http") -> None:
    async def talk() -> None:
        async with server.client("legacy") as client:
            await _follow_run(client)

    anyio.run(talk)


def test_progress_tells_the_last_line_and_never_goes_back(tmp_path: Path) -> None:
    """An HTTP test covers progress in the newer era of MCP. In that era, the in-process client
    sends no progress token."""
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        heard.append((progress, message))

    async def talk(client: Client) -> None:
        script = r"echo first; sleep 0.7; printf 'a\r\033[31mred 50%%\033[0m'; sleep 0.7"
        await client.call_tool("bash", {"command": script}, progress_callback=hear)

    in_process(talk, tmp_path, often=0.2)
    assert [progress for progress, _ in heard] == sorted(progress for progress, _ in heard)
    said = [re.sub(r"^\d+ s: ", "", message or "") for _, message in heard]
    assert said[0] == "first"
    assert said[-1] == "red 50%"


def test_a_silent_command_sends_progress_too(tmp_path: Path) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        heard.append(message)

    async def run() -> None:
        with nacre.Tool("harness", cwd=tmp_path) as tool:
            shell = McpServer(tool, often=0.1, seldom=0.3)
            async with Client(shell, mode="legacy") as client:
                await client.call_tool("bash", {"command": "sleep 1"}, progress_callback=hear)

    anyio.run(run)
    assert len(heard) >= 2
    assert re.fullmatch(r"running for \d s", heard[0] or "")


@ERAS
def test_cancelling_ends_the_tree_and_leaves_what_was_to_stay(era: str, tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        kept = await client.call_tool("bash", {"command": "sleep 73.1", "wait": 0})
        script = "touch begun; (setsid sleep 73.2 &); sleep 73.2"
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as beside:
                beside.start_soon(client.call_tool, "bash", {"command": script})
                while not (tmp_path / "begun").exists():
                    await anyio.sleep(0.02)
                scope.cancel()
        while named("sleep 73.2"):
            await anyio.sleep(0.02)
        assert named("sleep 73.1")
        run = details(kept)["run"]
        ended = await client.call_tool("job", {"action": "signal", "run": run})
        assert details(ended)["state"] == "killed"

    over_stdio(talk, era=era, cwd=tmp_path)


def test_a_client_that_goes_takes_its_commands_with_it_and_no_others(tmp_path: Path) -> None:
    kept: list[str] = []

    async def talk(client: Client) -> None:
        result = await client.call_tool("bash", {"command": "sleep 73.3", "wait": 0})
        kept.append(details(result)["run"])
        async with anyio.create_task_group() as beside:
            beside.start_soon(client.call_tool, "bash", {"command": "touch begun; sleep 73.4"})
            while not (tmp_path / "begun").exists():
                await anyio.sleep(0.02)
            raise ZeroDivisionError  # ends the client

    with pytest.raises(BaseExceptionGroup):
        over_stdio(talk, cwd=tmp_path)
    eventually(lambda: not named("sleep 73.4"))
    with nacre.Tool(cwd=tmp_path) as tool:
        assert tool.run(kept[0]).state == "running"
        tool.run(kept[0]).end()


def test_no_call_blocks_longer_than_the_client_can_wait(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        began = time.monotonic()
        result = await client.call_tool("bash", {"command": "sleep 73.5", "wait": 60})
        assert time.monotonic() - began < 10
        assert "[r1 is running; pid" in text(result)
        assert text(result).endswith("\n[this front waits at most 0.5 s]")
        run = details(result)["run"]
        result = await client.call_tool("job", {"action": "wait", "run": run, "wait": 60})
        assert details(result)["state"] == "running"
        await client.call_tool("job", {"action": "signal", "run": run})

    over_stdio(talk, "--max-wait", "0.5", cwd=tmp_path)


def test_pi_hands_back_a_job_too_but_not_what_ends_before_that(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["bash", "job"]
        result = await client.call_tool("bash", {"command": "echo on; sleep 73.6"})
        assert text(result).startswith("on\nBackground job r1 started: echo on; sleep 73.6\n")
        await client.call_tool("job", {"cancel": ["r1"]})
        result = await client.call_tool("bash", {"command": "sleep 73.7", "timeout": 1})
        assert text(result).endswith("Command timed out after 1 seconds")

    in_process(talk, tmp_path, contract="pi", max_wait=3, grace=0.4)


def test_a_contract_that_cannot_hand_back_keeps_the_client_waiting(tmp_path: Path) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        heard.append(message)

    async def talk(client: Client) -> None:
        given = {"command": "echo slow; sleep 1"}
        result = await client.call_tool("bash", given, progress_callback=hear)
        assert json.loads(text(result)) == details(result)
        assert details(result) == {"stdout": "slow\n", "stderr": "", "exitCode": 0}

    in_process(talk, tmp_path, contract="harness", often=0.3, max_wait=0.1)
    assert re.fullmatch(r"\d s: slow", heard[0] or "")


@ERAS
def test_logs_are_resources_with_ranges_and_ids_to_choose_from(era: str, tmp_path: Path) -> None:
    async def content(client: Client, uri: str) -> Any:
        (found,) = (await client.read_resource(uri)).contents
        return found

    async def talk(client: Client) -> None:
        await client.call_tool("bash", {"command": "seq 5"})
        await client.call_tool("bash", {"command": r"printf '\0\377'"})
        await client.call_tool("bash", {"command": "head -c 1500000 /dev/zero | tr '\\0' x"})
        listed = (await client.list_resources()).resources
        assert [str(each.uri) for each in listed] == [
            "artifact://3",
            "artifact://2",
            "artifact://1",
        ]
        assert (listed[2].name, listed[2].title) == ("r1", "seq 5")
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [
            "artifact://{run}",
            "artifact://{run}{?from,to,lines,since}",
        ]
        assert (await content(client, "artifact://1")).text == "1\n2\n3\n4\n5\n"
        assert (await content(client, "artifact://r1?from=2&to=3")).text == "2\n3\n"
        assert (await content(client, "artifact://1?lines=1")).text == "5\n"
        part = await content(client, "artifact://1?since=8")
        assert (part.text, part.meta["nacre/cursor"], part.meta["nacre/over"]) == ("5\n", 10, True)
        assert (await content(client, "artifact://2")).blob == "AP8="
        part = await content(client, "artifact://3?since=0")
        assert (len(part.text), part.meta["nacre/over"]) == (1024 * 1024, False)
        for uri, problem in (
            ("artifact://3", "these lines of r3 have more than 1MB"),
            ("artifact://99", "there is no run r99"),
            ("artifact://x", "resources are artifact://RUN"),
            ("artifact://[::1", "resources are artifact://RUN"),
            ("artifact://1#x", "resources are artifact://RUN"),
            ("artifact://1?lines=" + "9" * 5000, "is not a range"),
            ("artifact://1?lines=1&lines=2", "is not a range"),
            ("artifact://1?from=5&to=3", "to is before from"),
            ("artifact://1?page=2", "page=2 is not a range"),
            ("artifact://1?from=0", "from is 0"),
            ("artifact://1?lines=1&since=2", "exclude each other"),
            ("file:///etc/passwd", "resources are artifact://RUN"),
        ):
            with pytest.raises(MCPError, match=re.escape(problem)) as raised:
                await content(client, uri)
            assert raised.value.code == wire.INVALID_PARAMS
        ref = wire.ResourceTemplateReference(type="ref/resource", uri="artifact://{run}")
        done = await client.complete(ref, {"name": "run", "value": ""})
        assert done.completion.values == ["3", "2", "1"]
        done = await client.complete(ref, {"name": "run", "value": "r2"})
        assert done.completion.values == ["2"]
        done = await client.complete(ref, {"name": "lines", "value": ""})
        assert done.completion.values == []

    in_process(talk, tmp_path, era=era)


def test_a_hundred_calls_at_once_are_neither_lost_nor_mixed(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        found: dict[int, str] = {}

        async def one(number: int) -> None:
            script = f"sleep 0.1; echo {number}"
            found[number] = text(await client.call_tool("bash", {"command": script}))

        async with anyio.create_task_group() as beside:
            for number in range(100):
                beside.start_soon(one, number)
        assert found == {number: f"{number}\n" for number in range(100)}

    over_stdio(talk, cwd=tmp_path)


def test_a_command_cannot_get_at_the_wire(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        script = "readlink /proc/self/fd/0; ls /proc/self/fd | wc -l; cat; echo '{'"
        result = await client.call_tool("bash", {"command": script})
        assert details(result)["stdout"].splitlines() == ["/dev/null", "4", "{"]
        script = "cd /proc/$PPID/fd || exit; readlink 0; echo '{' > 1"
        result = await client.call_tool("bash", {"command": script})
        if os.getuid():  # without root, descriptors of the server cannot be listed
            assert "Permission denied" in details(result)["stderr"]
        else:  # stdin is /dev/null, and stdout is the server's stderr
            assert details(result)["stdout"] == "/dev/null\n"
        assert text(await client.call_tool("bash", {"command": "true"}))

    over_stdio(talk, "--contract", "harness", cwd=tmp_path)


SHAPES = {
    ("harness", "bash"): reply_schemas.HARNESS_REPLY,
    ("phoenix", "bash"): reply_schemas.PHOENIX_REPLY,
    ("pi", "bash"): reply_schemas.PI_REPLY,
    ("pi", "job"): reply_schemas.PI_JOB_REPLY,
    ("nacre", "bash"): reply_schemas.NACRE_REPLY,
    ("nacre", "job"): reply_schemas.NACRE_JOB_REPLY,
}


def test_every_detail_of_every_row_is_in_its_schema(tmp_path: Path) -> None:
    """The schemas are closed for this test, so a field that is not in the schema is an error. The
    tests of the case table run each row through the MCP client. That client validates every reply
    that is not an error. This test validates the replies as the contract pages show them."""
    seen = 0
    for contract, case in ROWS:
        shown = case.get("details", case.get("reply"))
        if shown is not None:
            seen += 1
            shape = _closed(SHAPES[contract, case.get("tool", "bash")])
            lacking = {"seconds": 0.0, "run": "r1"} if contract == "nacre" else {}
            jsonschema.validate({**lacking, **_filled(shown)}, shape)
    assert seen > 60
    with nacre.Tool(cwd=tmp_path) as tool:
        given = {"command": "read x; sleep 73.8", "interactive": True, "until": {"idle": 9}}
        reply = tool.call(given)
        assert "prompt" in reply.details
        jsonschema.validate(reply.details, _closed(reply_schemas.NACRE_REPLY))
        for job in ({"action": "list"}, {"action": "signal", "run": reply.details["run"]}):
            reply = tool.call(job, tool="job")
            jsonschema.validate(reply.details, _closed(reply_schemas.NACRE_JOB_REPLY))


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each) for each in value]
    return (
        {"NULL": None, "PID": 17, "MEASURED": 1}.get(value, value)
        if isinstance(value, str)
        else value
    )


def _closed(schema: Any) -> Any:
    if isinstance(schema, dict):
        made = {key: _closed(each) for key, each in schema.items()}
        return {**made, "additionalProperties": False} if "properties" in schema else made
    return [_closed(each) for each in schema] if isinstance(schema, list) else schema


# Tests over HTTP


class Http:
    """Server process of `nacre mcp --http` on a free port."""

    def __init__(self, *words: str, cwd: Path, **env: str) -> None:
        self.cwd = cwd
        self.process = subprocess.Popen(
            [PROGRAM, "mcp", "--http", "0", *words],
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, **env},
        )
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        found = re.search(r"http://\S+/mcp", self.said)
        assert found is not None, self.said
        self.url = found[0]

    @property
    def headers(self) -> dict[str, str]:
        file = re.search(r"the token is in (\S+)", self.said)
        return {"Authorization": f"Bearer {Path(file[1]).read_text().strip()}"} if file else {}

    @asynccontextmanager
    async def client(self, era: str) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=self.headers, timeout=60) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=era) as client,
        ):
            yield client

    def post(self, **headers: str) -> int:
        return httpx2.post(self.url, json={}, headers=headers).status_code

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    place = tmp_path_factory.mktemp("http")
    found = Http(cwd=place, NACRE_HOME=str(place / "state"))
    yield found
    assert found.end() == 143
    wardens.end(place)


@ERAS
@pytest.mark.xdist_group("http")
def test_http_does_all_of_it_too(era: str, server: Http) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        heard.append(message)

    async def talk() -> None:
        async with server.client(era) as client, server.client(era) as other:
            given = {"command": "echo hi; sleep 1.8"}
            result = await client.call_tool("bash", given, progress_callback=hear)
            assert text(result) == "hi\n"
            found: dict[int, str] = {}

            async def one(number: int) -> None:
                caller = client if number % 2 else other
                result = await caller.call_tool("bash", {"command": f"echo {number}"})
                found[number] = text(result)

            async with anyio.create_task_group() as beside:
                for number in range(100):
                    beside.start_soon(one, number)
            assert found == {number: f"{number}\n" for number in range(100)}
            assert len((await client.list_resources()).resources) == 50

    anyio.run(talk)
    assert heard[0] == "1 s: hi"


@ERAS
@pytest.mark.xdist_group("http")
def test_http_ends_the_command_of_a_client_that_disconnected(era: str, server: Http) -> None:
    begun = server.cwd / f"begun-{era}"
    code = (
        "import anyio, httpx2\n"
        "from mcp import Client\n"
        "from mcp.client.streamable_http import streamable_http_client\n"
        "async def main():\n"
        f"    async with httpx2.AsyncClient(headers={server.headers!r}, timeout=60) as http:\n"
        f"        made = streamable_http_client({server.url!r}, http_client=http)\n"
        f"        async with Client(made, mode={era!r}) as client:\n"
        f"            command = 'touch {begun}; sleep 73.9'\n"
        "            await client.call_tool('bash', {'command': command})\n"
        "anyio.run(main)"
    )
    client = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    eventually(begun.exists, 30)
    client.kill()
    client.wait()
    eventually(lambda: not named("sleep 73.9"))


@ERAS
def test_no_prompts_are_declared(era: str, tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        assert client.server_capabilities.prompts is None
        for ask in (client.list_prompts(), client.get_prompt("x")):
            with pytest.raises(MCPError) as error:
                await ask
            assert error.value.code == wire.METHOD_NOT_FOUND

    in_process(talk, tmp_path, era=era)


@DEPRECATED
def test_the_end_of_a_run_is_announced_to_a_client_with_a_handshake(tmp_path: Path) -> None:
    logged: list[wire.LoggingMessageNotificationParams] = []
    updated: list[str] = []

    async def on_log(params: wire.LoggingMessageNotificationParams) -> None:
        logged.append(params)

    async def on_message(message: object) -> None:
        if isinstance(message, wire.ResourceUpdatedNotification):
            updated.append(str(message.params.uri))

    async def talk(client: Client) -> None:
        capabilities = client.server_capabilities
        assert capabilities.resources is not None
        assert (capabilities.resources.subscribe, capabilities.logging) == (
            True,
            wire.LoggingCapability(),
        )
        for command in (f"{WAIT_FOR_GO}; echo end; exit 3", WAIT_FOR_GO, "sleep 73.1"):
            await client.call_tool("bash", {"command": command, "wait": 0})
        for uri in ("artifact://1", "artifact://r1", "artifact://2"):
            await client.subscribe_resource(uri)
        await client.unsubscribe_resource("artifact://2")
        (tmp_path / "go").touch()
        while len(logged) < 2 or len(updated) < 2:
            await anyio.sleep(0.05)
        with pytest.raises(MCPError, match="artifact://9: there is no run r9"):
            await client.subscribe_resource("artifact://9")
        await client.call_tool("job", {"action": "signal", "run": "r3"})
        while len(logged) < 3:
            await anyio.sleep(0.05)

    in_process(talk, tmp_path, on_log=on_log, on_message=on_message)
    assert sorted(updated) == ["artifact://1", "artifact://r1"]
    said = {each.data["run"]: each for each in logged}
    assert said["r1"].data == {
        "run": "r1",
        "state": "failed",
        "resource": "artifact://1",
        "text": "end\n[exit code 3]",
    }
    levels = {run: (each.logger, each.level) for run, each in said.items()}
    assert levels == dict.fromkeys(("r1", "r3"), ("nacre", "warning")) | {"r2": ("nacre", "info")}


@DEPRECATED
def test_a_client_that_subscribed_while_it_waited_gets_both_notifications(tmp_path: Path) -> None:
    heard: list[str] = []

    async def on_log(params: wire.LoggingMessageNotificationParams) -> None:
        heard.append(params.data["state"])

    async def on_message(message: object) -> None:
        if isinstance(message, wire.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async def talk(client: Client) -> None:
        async with anyio.create_task_group() as beside:
            given = {"command": f"touch begun; {WAIT_FOR_GO}", "wait": 1}
            beside.start_soon(client.call_tool, "bash", given)
            while not (tmp_path / "begun").exists():
                await anyio.sleep(0.02)
            await client.subscribe_resource("artifact://1")
        (tmp_path / "go").touch()
        while len(heard) < 2:
            await anyio.sleep(0.05)

    in_process(talk, tmp_path, on_log=on_log, on_message=on_message)
    assert sorted(heard) == ["artifact://1", "completed"]


def test_events_that_arrive_during_a_replay_are_replayed() -> None:
    def response(id: int) -> wire.JSONRPCResponse:
        return wire.JSONRPCResponse(jsonrpc="2.0", id=id, result={})

    async def run() -> list[object]:
        store, sent = RecentEvents(max_events=5), list[object]()

        async def send(event: EventMessage) -> None:
            sent.append(event.message)
            if len(sent) == 1:
                await store.store_event("1", response(8))

        first = await store.store_event("1", None)
        await store.store_event("2", response(1))
        await store.store_event("1", response(7))
        assert await store.replay_events_after(first, send) == "1"
        assert await store.replay_events_after("99", send) is None
        for number in range(5):
            await store.store_event("3", response(number))
        assert await store.replay_events_after(first, send) is None  # dropped, as the oldest
        return sent

    assert anyio.run(run) == [response(7), response(8)]


@DEPRECATED
def test_a_client_chooses_the_level_of_log_messages(tmp_path: Path) -> None:
    logged: list[str] = []

    async def on_log(params: wire.LoggingMessageNotificationParams) -> None:
        logged.append(params.data["run"])

    async def run() -> None:
        with nacre.Tool(cwd=tmp_path) as tool, anyio.fail_after(60):
            async with Client(McpServer(tool), mode="legacy", logging_callback=on_log) as client:
                await client.session.set_logging_level("warning")
                for command in ("true", "false"):
                    given = {"command": f"sleep 0.5; {command}", "wait": 0}
                    await client.call_tool("bash", given)
                while "r2" not in logged:
                    await anyio.sleep(0.05)

    anyio.run(run)
    assert logged == ["r2"]


def test_the_end_of_a_run_is_announced_to_a_client_that_listens(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        await client.call_tool("bash", {"command": "sleep 1", "wait": 0})
        uris = {"artifact://1", "artifact://r1?lines=5"}
        async with client.listen(resource_subscriptions=[*uris]) as events:
            async for event in events:
                assert isinstance(event, ResourceUpdated)
                uris.remove(event.uri)
                if not uris:
                    break

    in_process(talk, tmp_path, era="auto")


def test_a_client_hears_of_a_run_that_another_program_started(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        with nacre.Tool(cwd=tmp_path) as other:
            run = other.start({"command": "sleep 1"})
        async with client.listen(resource_subscriptions=[f"artifact://{run.id}"]) as events:
            async for event in events:
                assert event == ResourceUpdated(uri=f"artifact://{run.id}")
                break

    in_process(talk, tmp_path, era="auto")


@pytest.mark.xdist_group("http")
def test_http_resumes_a_broken_stream(server: Http) -> None:
    begun = server.cwd / "resumed"
    headers = {**server.headers, "Accept": "application/json, text/event-stream"}

    def request(id: int, method: str, **params: object) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
        event: dict[str, str] = {}
        for line in lines:
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            elif event:
                yield event
                event = {}

    with httpx2.Client(headers=headers, timeout=30) as http:
        hello = request(
            1,
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "t", "version": "1"},
        )
        headers = {
            "Mcp-Session-Id": http.post(server.url, json=hello).headers["mcp-session-id"],
            "MCP-Protocol-Version": "2025-11-25",
        }
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        http.post(server.url, json=ready, headers=headers)
        arguments = {"command": f"touch {begun}; sleep 1; echo resumed"}
        call = request(2, "tools/call", name="bash", arguments=arguments)
        with http.stream("POST", server.url, json=call, headers=headers) as stream:
            first = next(events(stream.iter_lines()))
            eventually(begun.exists)
        assert (first.get("data", ""), first["retry"]) == ("", "1000")
        again = {**headers, "Last-Event-ID": first["id"]}
        with http.stream("GET", server.url, headers=again) as stream:
            for event in events(stream.iter_lines()):
                if event.get("data"):
                    answer = json.loads(event["data"])
                    break
    assert (answer["id"], answer["result"]["content"][0]["text"]) == (2, "resumed\n")


def test_http_refuses_a_wrong_token_host_or_origin(tmp_path: Path, home: Path) -> None:
    server = Http(cwd=tmp_path)
    token = home / "mcp.token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text().strip() not in server.said
    assert server.url.startswith("http://127.0.0.1:")
    good = server.headers
    assert server.post() == 401
    assert server.post(Authorization="Bearer x") == 401
    assert server.post(Authorization=token.read_text().strip()) == 401
    assert server.post(**good, Host="example.com") == 421
    assert server.post(**good, Host="127.0.0.1.example.com") == 421
    assert server.post(**good, Origin="http://example.com") == 403
    assert server.post(**good, Origin="null") == 403
    for odd in ("127.0.0.1:80@example.com", "localhost:x.example.com", "localhost:", "[::1"):
        assert server.post(**good, Host=odd) in (400, 421), odd
        assert server.post(**good, Origin=f"http://{odd}") == 403, odd
    assert server.post(**good, Host="LOCALHOST:1") not in (421, 403)
    assert server.post(**good, Host="localhost", Origin="http://localhost:3000") not in (421, 403)
    second = Http(cwd=tmp_path)  # the second server reuses the token of the first server
    assert second.headers == good
    assert (server.end(), second.end()) == (143, 143)


def test_http_options_change_the_token_hosts_and_origins(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret" * 4 + "\n")
    (tmp_path / "token").chmod(0o600)
    words = ["--token-file", str(tmp_path / "token"), "--allow-host", "box.example"]
    server = Http(*words, "--allow-origin", "https://page.example", cwd=tmp_path)
    asked = {"Host": "box.example", "Origin": "https://page.example"}
    assert server.post(Authorization=f"Bearer {'s3cret' * 4}", **asked) not in (401, 403, 421)
    assert server.end() == 143
    server = Http("--no-token", cwd=tmp_path)
    assert "no token is required" in server.said
    assert server.post() not in (401, 403, 421)
    assert server.end() == 143


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("x")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "empty").touch(0o600)
    for words, problem in (
        (["--contract", "x"], "there is no contract 'x'"),
        (["--set", "x=1"], "no option"),
        (["--http", "x"], "--http x has no port"),
        (["--http", "99999"], "a port is at most 65535"),
        (["--http", "0", "--allow-origin", "x"], "--allow-origin x is not an origin"),
        (["--http", "0", "--allow-host", "http://x"], "--allow-host http://x is not a host"),
        (["--http", "0", "--no-token", "--token-file", "x"], "exclude each other"),
        (["--cwd", "/nowhere"], "--cwd /nowhere is not a directory"),
        (["--http", "0.0.0.0:0", "--no-token"], "--no-token is only allowed on a loopback"),
        (["--no-token"], "--no-token needs --http"),
        (["--http", "0", "--token-file", str(tmp_path / "none")], "does not exist"),
        (["--http", "0", "--token-file", str(tmp_path / "open")], "can be read by other users"),
        (["--http", "0", "--token-file", str(tmp_path / "empty")], "has no token"),
    ):
        said = subprocess.run(
            [PROGRAM, "mcp", *words],
            capture_output=True,
            text=True,
            timeout=30,
            stdin=subprocess.DEVNULL,
        )
        assert (said.returncode, said.stdout) == (2, ""), words
        assert problem in said.stderr
        assert said.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    server = Http(cwd=tmp_path)
    port = server.url.rpartition(":")[2].removesuffix("/mcp")
    words = [PROGRAM, "mcp", "--http", port]
    said = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert said.returncode == 1
    assert said.stderr == (
        f"nacre: 127.0.0.1:{port} cannot be bound: it is in use, or not an address of this "
        "machine; choose another, or --http 0\n"
    )
    assert server.end() == 143


def test_a_signal_ends_the_server_and_what_is_waited_for(tmp_path: Path) -> None:
    given = {"command": "trap '' TERM; touch begun; while :; do sleep 0.1; done #74.1"}
    process, stdin, stdout = _begun(tmp_path, given, contract="nacre")
    eventually((tmp_path / "begun").exists)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert alive(process.pid)  # the grace of five seconds has not passed
    process.send_signal(signal.SIGTERM)
    assert process.wait(4) == 143
    assert named("#74.1") == []
    stdin.close()
    stdout.close()


def test_a_slow_client_gets_the_last_reply_whole(tmp_path: Path) -> None:
    process, stdin, stdout = _begun(tmp_path, {"command": "seq 100000; touch begun; sleep 60"})
    eventually((tmp_path / "begun").exists)
    process.terminate()
    time.sleep(1)
    first, second = (json.loads(line) for line in stdout.read().splitlines())
    assert (first["id"], second["id"]) == (1, 2)
    assert second["result"]["structuredContent"]["error"] == "command cancelled"
    assert process.wait(10) == 143
    stdin.close()
    stdout.close()


def test_the_server_exits_although_its_client_has_read_no_reply(tmp_path: Path) -> None:
    given = ({"command": f"seq 9000; touch {i}"} for i in "abcde")
    process, stdin, stdout = _begun(tmp_path, *given)
    eventually(lambda: len(list(tmp_path.glob("?"))) == 5)
    time.sleep(1)  # the replies are larger than the pipe buffer
    stdin.close()
    assert process.wait(15) == 0  # the client has not read a single byte
    stdout.close()


def _begun(
    place: Path, *given: dict[str, Any], contract: str = "harness"
) -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]:
    """Start a server, send it these calls, and return the process with its stdin and stdout."""
    words = [PROGRAM, "mcp", "--contract", contract]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=pipe, stdout=pipe, cwd=place)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"".join(_lines(*given)))
    process.stdin.flush()
    return process, process.stdin, process.stdout


def _lines(*given: dict[str, Any]) -> Iterator[bytes]:
    """Generate the JSON-RPC lines of an MCP session with these calls."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}}
    client["clientInfo"] = {"name": "t", "version": "1"}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
    ]
    for number, each in enumerate(given, 2):
        call = {"name": "bash", "arguments": each}
        messages.append({"id": number, "method": "tools/call", "params": call})
    for message in messages:
        yield json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def test_what_makes_one_call_fail_does_not_look_like_a_mistake_of_tasks(tmp_path: Path) -> None:
    async def run() -> None:
        with nacre.Tool("harness", cwd=tmp_path) as tool:
            shell = McpServer(tool)
            tool.close()
            async with Client(shell, mode="legacy") as client:
                result = await client.call_tool("bash", {"command": "true"})
                assert "closed" in text(result)

    anyio.run(run)


def test_without_the_package_it_says_what_to_install() -> None:
    code = (
        "import importlib.util as u; u.find_spec = lambda name: None\n"
        "from nacre.frontends.cli.main import main; raise SystemExit(main(['mcp']))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert said.returncode == 2
    assert said.stderr == (
        "nacre: this needs the package mcp; install it with: pip install 'mcp>=2.3,<3'\n"
    )


def test_what_every_front_must_do_is_in_the_table_of_each_contract() -> None:
    for contract in case_table.contracts():
        shown = {case["shows"] for case in case_table.cases(contract) if "shows" in case}
        missing = {"echo", "a failure", "a timeout", "a background command", "a cancellation"}
        assert missing - shown <= ({"a background command"} if contract == "harness" else set())
