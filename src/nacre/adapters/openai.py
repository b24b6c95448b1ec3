"""Adapter for OpenAI's APIs: Responses, Chat Completions, and the built-in `shell` tool.

Example:

    tools = openai.tools(tool)                    # for responses.create(tools=...)
    items = [openai.answer(tool, item) for item in response.output if item.type == "function_call"]

    shell = nacre.Tool("harness")                 # stdout and stderr apart, as that tool has them
    items = [openai.shell_answer(shell, item) for item in ... if item.type == "shell_call"]
"""

import json
from typing import TYPE_CHECKING, Any, cast

from nacre.contracts.contract import Reply
from nacre.model.outcome import Capture, NotStarted, Outcome, TimedOut
from nacre.model.refusals import Refused
from nacre.text.clean import decode, drop_partial_end, drop_partial_start
from nacre.tool.tool import Tool

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

# Exit code that is reported for a command that was not started or has no exit status; nacre's
# command line uses the same code.
_NO_STATUS = 125
_MAX_OUTPUT = 20_000  # maximum characters of stdout and of stderr each, if the model sets no limit


def tools(tool: Tool) -> "list[FunctionToolParam]":
    build = [{"type": "function", **each["function"]} for each in tool.specs("openai")]
    return cast("list[FunctionToolParam]", build)


def answer(tool: Tool, call: "ResponseFunctionToolCall") -> "FunctionCallOutput":
    return _call_output(call, tool.call(parse_arguments(call.arguments), tool=call.name))


async def aanswer(tool: Tool, call: "ResponseFunctionToolCall") -> "FunctionCallOutput":
    return _call_output(call, await tool.acall(parse_arguments(call.arguments), tool=call.name))


def chat_tools(tool: Tool) -> "list[ChatCompletionFunctionToolParam]":
    return cast("list[ChatCompletionFunctionToolParam]", tool.specs("openai"))


def chat_answer(
    tool: Tool, call: "ChatCompletionMessageFunctionToolCall"
) -> "ChatCompletionToolMessageParam":
    reply = tool.call(parse_arguments(call.function.arguments), tool=call.function.name)
    return {"role": "tool", "tool_call_id": call.id, "content": reply.text}


async def achat_answer(
    tool: Tool, call: "ChatCompletionMessageFunctionToolCall"
) -> "ChatCompletionToolMessageParam":
    reply = await tool.acall(parse_arguments(call.function.arguments), tool=call.function.name)
    return {"role": "tool", "tool_call_id": call.id, "content": reply.text}


def shell_answer(tool: Tool, call: "ResponseFunctionShellToolCall") -> "ShellCallOutput":
    """Run the commands of one call of OpenAI's built-in `shell` tool in order, and return one
    result per command. `tool` must be a nacre tool with the `harness` contract, which
    captures stdout and stderr separately."""
    check_streams(tool)
    seconds, most = read_limits(call.action)
    done = []
    for command in call.action.commands:
        try:
            done.append(shell_result(tool.answer({"command": command}, timeout=seconds), most))
        except Refused as refused:
            done.append(shell_not_started(refused.refusal))
    return _shell_output(call, done)


async def ashell_answer(tool: Tool, call: "ResponseFunctionShellToolCall") -> "ShellCallOutput":
    check_streams(tool)
    done = [await shell_command(tool, each, call.action) for each in call.action.commands]
    return _shell_output(call, done)


async def shell_command(tool: Tool, command: str, action: Any) -> dict[str, Any]:
    """Run one command of a call of OpenAI's `shell` tool under asyncio, and return its stdout,
    stderr and exit code or timeout."""
    seconds, most = read_limits(action)
    try:
        return shell_result(await tool.aanswer({"command": command}, timeout=seconds), most)
    except Refused as refused:
        return shell_not_started(refused.refusal)


def parse_arguments(arguments: str) -> Any:
    """Parse the JSON arguments of a model's tool call. Arguments that are not valid JSON are
    returned as text, so that the contract refuses the tool call with its own error message."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def check_streams(tool: Tool) -> None:
    """Check that a nacre tool uses the `harness` contract, which captures stdout and stderr
    separately. Raises ValueError for a tool that does not use the `harness` contract."""
    if tool.contract.name != "harness":
        raise ValueError(
            f"the shell tool needs stdout and stderr apart, and the contract {tool.contract.name} "
            "merges them; use nacre.Tool('harness')"
        )


def read_limits(action: Any) -> tuple[float | None, int]:
    """Return the timeout in seconds (None: the contract's default) and the maximum characters per
    stream that a call of OpenAI's `shell` tool asks for. A timeout or output limit of zero or less
    is the model's mistake and is ignored."""
    milliseconds, most = action.timeout_ms, action.max_output_length
    seconds = milliseconds / 1000 if milliseconds and milliseconds > 0 else None
    return seconds, most if most and most > 0 else _MAX_OUTPUT


def shell_result(outcome: Outcome, most: int) -> dict[str, Any]:
    if isinstance(outcome.ending, NotStarted):
        return shell_not_started(outcome.ending.why)
    late = isinstance(outcome.ending, TimedOut)
    code = _NO_STATUS if outcome.exit_code is None else outcome.exit_code
    return {
        "stdout": _shorten(outcome.output, most),
        "stderr": _shorten(outcome.errors or Capture(), most),
        "outcome": {"type": "timeout"} if late else {"type": "exit", "exit_code": code},
    }


def shell_not_started(why: object) -> dict[str, Any]:
    exited = {"type": "exit", "exit_code": _NO_STATUS}
    return {"stdout": "", "stderr": str(why), "outcome": exited}


def _shorten(capture: Capture, most: int) -> str:
    """Return captured output as text; if it has more than `most` characters, return only its
    beginning and end, with the number of omitted bytes between them."""
    head, tail = decode(drop_partial_end(capture.head)), decode(drop_partial_start(capture.tail))
    if not capture.omitted:
        head, tail = head + tail, ""
    if len(head) + len(tail) <= most and not capture.omitted:
        return head
    first = head[: most - most // 2]
    last = (head + tail)[-(most // 2) :] if most > 1 else ""
    left_out = capture.size - len(first.encode()) - len(last.encode())
    return f"{first}\n[{left_out} bytes left out]\n{last}"


def _call_output(call: "ResponseFunctionToolCall", reply: Reply) -> "FunctionCallOutput":
    return {"type": "function_call_output", "call_id": call.call_id, "output": reply.text}


def _shell_output(
    call: "ResponseFunctionShellToolCall", done: list[dict[str, Any]]
) -> "ShellCallOutput":
    build: dict[str, Any] = {"type": "shell_call_output", "call_id": call.call_id, "output": done}
    if call.action.max_output_length is not None:
        build["max_output_length"] = call.action.max_output_length
    return cast("ShellCallOutput", build)
