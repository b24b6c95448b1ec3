"""Adapter for Anthropic's Messages API: custom tools, and the built-in tool `bash_20250124`.

Example:

    tools = anthropic.tools(tool)                 # for messages.create(tools=...)
    results = [
        anthropic.answer(tool, block) for block in message.content if block.type == "tool_use"
    ]

    bash = anthropic.Bash(tool)                   # the built-in one: tools=bash.tools
    results = [bash.answer(block) for ...]
"""

import contextlib
import os
import weakref
from typing import TYPE_CHECKING, Any, cast

from nacre.adapters.extras import require
from nacre.contracts.contract import Reply
from nacre.sessions.handle import SessionProblem
from nacre.tool.tool import Tool

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool
    from anthropic.types import ToolResultBlockParam, ToolUnionParam, ToolUseBlock

    from nacre.runs.handle import RunHandle

_RESTARTED = "The shell was restarted; the processes that it had started have ended."
_LEFT = "The shell was restarted, but a process of {} could not be killed."


def tools(tool: Tool) -> "list[ToolUnionParam]":
    """Return the declarations of nacre's tools for `messages.create(tools=...)` of the Anthropic
    client."""
    return cast("list[ToolUnionParam]", tool.specs("anthropic"))


def answer(tool: Tool, block: "ToolUseBlock") -> "ToolResultBlockParam":
    """Run a model's tool call and return its `tool_result` block for the next message to the
    model."""
    return _tool_result(block, tool.call(_arguments(block), tool=block.name))


async def aanswer(tool: Tool, block: "ToolUseBlock") -> "ToolResultBlockParam":
    return _tool_result(block, await tool.acall(_arguments(block), tool=block.name))


def runnable(tool: Tool) -> "list[BetaFunctionTool[Any]]":
    """Return nacre's tools in the form that `client.beta.messages.tool_runner(tools=...)`
    accepts."""
    with require("anthropic"):
        from anthropic import beta_tool

    def build(name: str) -> Any:
        return lambda **given: _reply_text(tool.call(given, tool=name))

    return [
        beta_tool(build(each["name"]), **_custom_spec(each)) for each in tool.specs("anthropic")
    ]


def arunnable(tool: Tool) -> "list[BetaAsyncFunctionTool[Any]]":
    """Return nacre's tools in the form that the tool runner of the client `AsyncAnthropic`
    accepts."""
    with require("anthropic"):
        from anthropic import beta_async_tool

    def build(name: str) -> Any:
        async def call(**given: Any) -> str:
            return _reply_text(await tool.acall(given, tool=name))

        return call

    return [beta_async_tool(build(each["name"]), **_custom_spec(each)) for each in tool.specs()]


class SessionKeeper:
    """Provider of the one persistent shell that a model expects from Anthropic's built-in tool
    `bash`.

    A nacre tool of the `pi` contract has its own persistent shell, and so has a nacre tool with a
    session name. For a nacre tool of the `nacre` contract without a session name, `SessionKeeper`
    creates a private session with a random name.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._begin()

    @property
    def _manages_session(self) -> bool:
        """Whether the tool has the `nacre` contract and no session name, so that the
        `SessionKeeper` creates a session for the tool."""
        return self._tool.contract.name == "nacre" and not self._tool.session_name

    def _begin(self) -> None:
        self._name = f"anthropic {os.urandom(6).hex()}"
        self._end = weakref.finalize(self, _remove, self._tool, self._name)

    def with_session(self, arguments: Any, tool: str) -> Any:
        ours = self._manages_session and tool == "bash"
        if not ours or not isinstance(arguments, dict) or "session" in arguments:
            return arguments
        return {**arguments, "session": self._name}

    def forget(self) -> None:
        if self._manages_session:
            self._end()
            self._begin()
        elif self._tool.contract.has_sessions:
            self._tool.restart()


def _remove(tool: Tool, name: str) -> None:
    with contextlib.suppress(LookupError, SessionProblem, OSError):
        tool.session(name).remove()


class Bash:
    """Anthropic's built-in tool `bash` (arguments `command` and `restart`), implemented with a
    nacre tool."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._runs: set[str] = set()  # ids (`r17`) of the runs that the model's tool calls started
        self._memory = SessionKeeper(tool)

    @property
    def tools(self) -> "list[ToolUnionParam]":
        """Declarations of Anthropic's built-in tool `bash` and of nacre's other tools, such as
        `job`, which controls running commands."""
        others = [each for each in tools(self._tool) if each.get("name") != "bash"]
        return [{"type": "bash_20250124", "name": "bash"}, *others]

    def answer(self, block: "ToolUseBlock") -> "ToolResultBlockParam":
        given, restarts = _split_restart(block)
        if not restarts:
            given = self._memory.with_session(given, block.name)
            return _tool_result(block, self._note_run(self._tool.call(given, tool=block.name)))
        left = [run.id for run in self._live_runs() if run.end() is None]
        self._memory.forget()
        return _restart_reply(block, left)

    async def aanswer(self, block: "ToolUseBlock") -> "ToolResultBlockParam":
        given, restarts = _split_restart(block)
        if not restarts:
            given = self._memory.with_session(given, block.name)
            return _tool_result(
                block, self._note_run(await self._tool.acall(given, tool=block.name))
            )
        left = [run.id for run in self._live_runs() if await run.aend() is None]
        self._memory.forget()
        return _restart_reply(block, left)

    def _note_run(self, reply: Reply) -> Reply:
        if reply.run is not None:
            self._runs.add(reply.run)
        return reply

    def _live_runs(self) -> "list[RunHandle]":
        """Return the model's runs that still have live processes, and clear the set of recorded run
        ids."""
        found = [run for run in self._tool.runs(0) if run.id in self._runs]
        self._runs.clear()
        return found


def _restart_reply(block: "ToolUseBlock", left: list[str]) -> "ToolResultBlockParam":
    text = _LEFT.format(", ".join(left)) if left else _RESTARTED
    return _tool_result(block, Reply(text=text, is_error=bool(left), details={}))


def _split_restart(block: "ToolUseBlock") -> tuple[Any, bool]:
    """Split the arguments of a tool call: return them without `restart`, which no contract of nacre
    accepts, and the value of `restart` as a bool."""
    given = _arguments(block)
    if block.name != "bash" or not isinstance(given, dict):
        return given, False
    rest = {name: value for name, value in given.items() if name != "restart"}
    return rest, bool(given.get("restart"))


def _arguments(block: "ToolUseBlock") -> Any:
    return block.input


def _custom_spec(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: spec[key] for key in ("name", "description", "input_schema")}


def _reply_text(reply: Reply) -> str:
    if reply.is_error:
        from anthropic.lib.tools import ToolError

        raise ToolError(reply.text)
    return reply.text


def _tool_result(block: "ToolUseBlock", reply: Reply) -> "ToolResultBlockParam":
    return {
        "type": "tool_result",
        "tool_use_id": block.id,
        "content": reply.text,
        "is_error": reply.is_error,
    }
