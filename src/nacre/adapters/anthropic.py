"""Anthropic's Messages API: custom tools, and the built-in tool `bash_20250124`.

tools = anthropic.tools(tool)                     # for messages.create(tools=...)
results = [anthropic.answer(tool, block) for block in message.content if block.type == "tool_use"]

bash = anthropic.Bash(tool)                       # the built-in one: tools=bash.tools
results = [bash.answer(block) for ...]
"""

import contextlib
import os
import weakref
from typing import TYPE_CHECKING, Any, cast

from nacre.adapters import needs
from nacre.contracts.contract import Reply
from nacre.remembered import SessionProblem
from nacre.tool import Tool

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool
    from anthropic.types import ToolResultBlockParam, ToolUnionParam, ToolUseBlock

    from nacre.handle import RunHandle

_RESTARTED = "The shell was restarted; what it had started has ended."
_LEFT = "The shell was restarted, but something of {} could not be killed."


def tools(tool: Tool) -> "list[ToolUnionParam]":
    """For `messages.create(tools=...)`."""
    return cast("list[ToolUnionParam]", tool.specs("anthropic"))


def answer(tool: Tool, block: "ToolUseBlock") -> "ToolResultBlockParam":
    """What the model is told in the next message."""
    return _result(block, tool.call(_arguments(block), tool=block.name))


async def aanswer(tool: Tool, block: "ToolUseBlock") -> "ToolResultBlockParam":
    return _result(block, await tool.acall(_arguments(block), tool=block.name))


def runnable(tool: Tool) -> "list[BetaFunctionTool[Any]]":
    """For `client.beta.messages.tool_runner(tools=...)`."""
    with needs("anthropic"):
        from anthropic import beta_tool

    def made(name: str) -> Any:
        return lambda **given: _text(tool.call(given, tool=name))

    return [beta_tool(made(each["name"]), **_named(each)) for each in tool.specs("anthropic")]


def arunnable(tool: Tool) -> "list[BetaAsyncFunctionTool[Any]]":
    """The same for `AsyncAnthropic`."""
    with needs("anthropic"):
        from anthropic import beta_async_tool

    def made(name: str) -> Any:
        async def call(**given: Any) -> str:
            return _text(await tool.acall(given, tool=name))

        return call

    return [beta_async_tool(made(each["name"]), **_named(each)) for each in tool.specs()]


class Memory:
    """The one shell that the built-in tool's model expects. pi has one anyway, and so has a tool
    with a session; else, under nacre, it is a session that nobody else knows of."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._begin()

    @property
    def _ours(self) -> bool:
        """Whether the tool has no such shell itself."""
        return self._tool.contract.name == "nacre" and not self._tool.session_name

    def _begin(self) -> None:
        self._name = f"anthropic {os.urandom(6).hex()}"
        self._end = weakref.finalize(self, _remove, self._tool, self._name)

    def given(self, arguments: Any, tool: str) -> Any:
        ours = self._ours and tool == "bash"
        if not ours or not isinstance(arguments, dict) or "session" in arguments:
            return arguments
        return {**arguments, "session": self._name}

    def forget(self) -> None:
        if self._ours:
            self._end()
            self._begin()
        elif self._tool.contract.remembers:
            self._tool.restart()


def _remove(tool: Tool, name: str) -> None:
    with contextlib.suppress(LookupError, SessionProblem, OSError):
        tool.session(name).remove()


class Bash:
    """The built-in tool, of which the model knows `command` and `restart`, answered by ours."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._runs: set[str] = set()  # that the model's commands have made
        self._memory = Memory(tool)

    @property
    def tools(self) -> "list[ToolUnionParam]":
        """The built-in one, and what else the contract has: `job`, to see to what still runs."""
        others = [each for each in tools(self._tool) if each.get("name") != "bash"]
        return [{"type": "bash_20250124", "name": "bash"}, *others]

    def answer(self, block: "ToolUseBlock") -> "ToolResultBlockParam":
        given, restarts = _read(block)
        if not restarts:
            given = self._memory.given(given, block.name)
            return _result(block, self._noted(self._tool.call(given, tool=block.name)))
        left = [run.id for run in self._started() if run.end() is None]
        self._memory.forget()
        return _restarted(block, left)

    async def aanswer(self, block: "ToolUseBlock") -> "ToolResultBlockParam":
        given, restarts = _read(block)
        if not restarts:
            given = self._memory.given(given, block.name)
            return _result(block, self._noted(await self._tool.acall(given, tool=block.name)))
        left = [run.id for run in self._started() if await run.aend() is None]
        self._memory.forget()
        return _restarted(block, left)

    def _noted(self, reply: Reply) -> Reply:
        if reply.run is not None:
            self._runs.add(reply.run)
        return reply

    def _started(self) -> "list[RunHandle]":
        """Those of them of which something lives."""
        found = [run for run in self._tool.runs(0) if run.id in self._runs]
        self._runs.clear()
        return found


def _restarted(block: "ToolUseBlock", left: list[str]) -> "ToolResultBlockParam":
    text = _LEFT.format(", ".join(left)) if left else _RESTARTED
    return _result(block, Reply(text=text, is_error=bool(left), details={}))


def _read(block: "ToolUseBlock") -> tuple[Any, bool]:
    """The arguments without `restart`, of which no contract knows; and that."""
    given = _arguments(block)
    if block.name != "bash" or not isinstance(given, dict):
        return given, False
    rest = {name: value for name, value in given.items() if name != "restart"}
    return rest, bool(given.get("restart"))


def _arguments(block: "ToolUseBlock") -> Any:
    return block.input


def _named(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: spec[key] for key in ("name", "description", "input_schema")}


def _text(reply: Reply) -> str:
    if reply.is_error:
        from anthropic.lib.tools import ToolError

        raise ToolError(reply.text)
    return reply.text


def _result(block: "ToolUseBlock", reply: Reply) -> "ToolResultBlockParam":
    return {
        "type": "tool_result",
        "tool_use_id": block.id,
        "content": reply.text,
        "is_error": reply.is_error,
    }
