"""OpenAI's APIs: function tools for Responses and Chat Completions, and the built-in `shell` tool.

tools = openai.tools(tool)                        # for responses.create(tools=...)
items = [openai.answer(tool, item) for item in response.output if item.type == "function_call"]

shell = nacre.Tool("harness")                     # stdout and stderr apart, as that tool has them
items = [openai.shell_answer(shell, item) for item in ... if item.type == "shell_call"]
"""

import json
from typing import TYPE_CHECKING, Any, cast

from nacre.contracts.contract import Reply
from nacre.outcome import Capture, Outcome, TimedOut
from nacre.refusals import Refused
from nacre.text import decode
from nacre.tool import Tool

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletionFunctionToolParam,
        ChatCompletionMessageFunctionToolCall,
        ChatCompletionToolMessageParam,
    )
    from openai.types.responses import (
        FunctionToolParam,
        ResponseFunctionShellToolCall,
        ResponseFunctionToolCall,
    )
    from openai.types.responses.response_input_param import FunctionCallOutput, ShellCallOutput

_NOT_STARTED = 125  # as the command line has it


def tools(tool: Tool) -> "list[FunctionToolParam]":
    made = [{"type": "function", **each["function"]} for each in tool.specs("openai")]
    return cast("list[FunctionToolParam]", made)


def answer(tool: Tool, call: "ResponseFunctionToolCall") -> "FunctionCallOutput":
    return _output(call, tool.call(given(call.arguments), tool=call.name))


async def aanswer(tool: Tool, call: "ResponseFunctionToolCall") -> "FunctionCallOutput":
    return _output(call, await tool.acall(given(call.arguments), tool=call.name))


def chat_tools(tool: Tool) -> "list[ChatCompletionFunctionToolParam]":
    return cast("list[ChatCompletionFunctionToolParam]", tool.specs("openai"))


def chat_answer(
    tool: Tool, call: "ChatCompletionMessageFunctionToolCall"
) -> "ChatCompletionToolMessageParam":
    reply = tool.call(given(call.function.arguments), tool=call.function.name)
    return {"role": "tool", "tool_call_id": call.id, "content": reply.text}


async def achat_answer(
    tool: Tool, call: "ChatCompletionMessageFunctionToolCall"
) -> "ChatCompletionToolMessageParam":
    reply = await tool.acall(given(call.function.arguments), tool=call.function.name)
    return {"role": "tool", "tool_call_id": call.id, "content": reply.text}


def shell_answer(tool: Tool, call: "ResponseFunctionShellToolCall") -> "ShellCallOutput":
    """Its commands one after the other, each with its own outcome."""
    seconds = timeout_of(tool, call.action.timeout_ms)
    done = []
    for command in call.action.commands:
        try:
            done.append(ended(tool.answer({"command": command}, timeout=seconds)))
        except Refused as refused:
            done.append(not_started(refused))
    return _shell_output(call, done)


async def ashell_answer(tool: Tool, call: "ResponseFunctionShellToolCall") -> "ShellCallOutput":
    seconds = timeout_of(tool, call.action.timeout_ms)
    done = []
    for command in call.action.commands:
        try:
            done.append(ended(await tool.aanswer({"command": command}, timeout=seconds)))
        except Refused as refused:
            done.append(not_started(refused))
    return _shell_output(call, done)


def given(arguments: str) -> Any:
    """What the model wrote; what is no JSON is refused by the contract, in its own words."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def timeout_of(tool: Tool, milliseconds: int | None) -> float | None:
    if tool.contract.name != "harness":
        raise ValueError(
            f"the shell tool has stdout and stderr apart, and the contract {tool.contract.name} "
            "has not; give it nacre.Tool('harness')"
        )
    return None if milliseconds is None else milliseconds / 1000


def ended(outcome: Outcome) -> dict[str, Any]:
    late = isinstance(outcome.ending, TimedOut)
    code = _NOT_STARTED if outcome.exit_code is None else outcome.exit_code
    return {
        "stdout": _text(outcome.output),
        "stderr": _text(outcome.errors or Capture()),
        "outcome": {"type": "timeout"} if late else {"type": "exit", "exit_code": code},
    }


def not_started(refused: Refused) -> dict[str, Any]:
    exited = {"type": "exit", "exit_code": _NOT_STARTED}
    return {"stdout": "", "stderr": str(refused), "outcome": exited}


def _text(capture: Capture) -> str:
    cut = f"\n[{capture.omitted} bytes left out]\n" if capture.omitted else ""
    return f"{decode(capture.head)}{cut}{decode(capture.tail)}"


def _output(call: "ResponseFunctionToolCall", reply: Reply) -> "FunctionCallOutput":
    return {"type": "function_call_output", "call_id": call.call_id, "output": reply.text}


def _shell_output(
    call: "ResponseFunctionShellToolCall", done: list[dict[str, Any]]
) -> "ShellCallOutput":
    made: dict[str, Any] = {"type": "shell_call_output", "call_id": call.call_id, "output": done}
    if call.action.max_output_length is not None:
        made["max_output_length"] = call.action.max_output_length
    return cast("ShellCallOutput", made)
