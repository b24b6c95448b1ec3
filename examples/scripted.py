"""A model that follows a script, behind the door of each SDK: the examples run without a key.

A script is a function: it sees the replies so far, as a model would, and says which tool to call
next, or its last words. `chosen(KEY)` tells whether there is a key in the environment; then the
examples ask the real model instead.
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any]]  # the tool and its arguments
Script = Callable[[list[str]], Call | str]

TASK = "In this directory, `bash check.sh` fails. Make it pass, run it again, then say what it was."
CHECK = 'grep -qx hello greeting.txt || { echo "greeting.txt must say hello"; exit 1; }; echo ok\n'


def workplace() -> tempfile.TemporaryDirectory[str]:
    """A directory in which the task can be done."""
    place = tempfile.TemporaryDirectory(prefix="nacre-example-")
    (Path(place.name) / "check.sh").write_text(CHECK)
    return place


def recover(replies: list[str]) -> Call | str:
    """Try, see it fail, read why, put it right, try again."""
    if not replies:
        return "bash", {"command": "bash check.sh"}
    if "must say hello" in replies[-1]:
        return "bash", {"command": "echo hello > greeting.txt; bash check.sh"}
    return f"It passes now: {replies[-1].strip()}"


def chosen(key: str) -> bool:
    """Whether the real model shall be asked."""
    return bool(os.environ.get(key))


def shown(name: str, arguments: object, reply: str) -> None:
    print(f"→ {name} {arguments}\n{reply.rstrip()}\n")


def model(tools: Any) -> Script:
    """For fronts that no SDK stands before: the script, or with ANTHROPIC_API_KEY (and the package
    anthropic) the real model, to which these tools are given; it is asked again with each reply."""
    if not chosen("ANTHROPIC_API_KEY"):
        return recover
    from anthropic import Anthropic

    messages: list[Any] = [{"role": "user", "content": TASK}]

    def script(replies: list[str]) -> Call | str:
        if replies:
            (used,) = (block for block in messages[-1]["content"] if block.type == "tool_use")
            result = {"type": "tool_result", "tool_use_id": used.id, "content": replies[-1]}
            messages.append({"role": "user", "content": [result]})
        message = Anthropic().messages.create(
            model=os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5-5"),
            max_tokens=2000,
            messages=messages,
            tools=tools,
            tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        )
        messages.append({"role": "assistant", "content": message.content})
        for block in message.content:
            if block.type == "tool_use":
                return block.name, dict(block.input)
        return "".join(block.text for block in message.content if block.type == "text")

    return script


# Doors. Each SDK is imported by whoever asks for its own.


def anthropic_client(script: Script) -> Any:
    """An `AsyncAnthropic` whose API is a script."""
    import anthropic
    import httpx2

    http = httpx2.AsyncClient(transport=anthropic_api(script))
    return anthropic.AsyncAnthropic(api_key="none", http_client=http)


def anthropic_api(script: Script) -> Any:
    """What answers in place of the API, for any client."""
    import httpx2

    seen: dict[str, str] = {}  # some send only what is new

    def answer(request: httpx2.Request) -> httpx2.Response:
        for message in json.loads(request.content)["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block["type"] == "tool_result":
                    seen[block["tool_use_id"]] = _text(block["content"])
        replies = [*seen.values()]
        said = script(replies)
        content: dict[str, Any]
        if isinstance(said, str):
            content, why = {"type": "text", "text": said}, "end_turn"
        else:
            name, given = said
            used = {"type": "tool_use", "id": f"toolu_{len(replies)}", "name": name, "input": given}
            content, why = used, "tool_use"
        message = {"id": f"msg_{len(replies)}", "type": "message", "role": "assistant"}
        message["model"] = "script"
        usage = {"input_tokens": 1, "output_tokens": 1}
        body = {**message, "content": [content], "stop_reason": why, "usage": usage}
        return httpx2.Response(200, json=body)

    return httpx2.MockTransport(answer)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(each["text"] for each in content)


def openai_client(script: Script) -> Any:
    """An `AsyncOpenAI` whose Responses API is a script."""
    import httpx2
    import openai

    def answer(request: httpx2.Request) -> httpx2.Response:
        items = json.loads(request.content)["input"]
        replies = [
            item["output"] if isinstance(item["output"], str) else json.dumps(item["output"])
            for item in items
            if isinstance(item, dict) and item.get("type", "").endswith("call_output")
        ]
        output = [_openai_item(script(replies), f"call_{len(replies)}")]
        made = {"id": "resp_1", "object": "response", "created_at": 0, "model": "script"}
        made |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
        return httpx2.Response(200, json={**made, "output": output})

    transport = httpx2.MockTransport(answer)
    http = httpx2.AsyncClient(transport=transport)
    return openai.AsyncOpenAI(api_key="none", http_client=http)


def _openai_item(said: Call | str, id: str) -> dict[str, Any]:
    if isinstance(said, str):
        content = [{"type": "output_text", "text": said, "annotations": []}]
        made = {"type": "message", "id": id, "role": "assistant", "status": "completed"}
        return {**made, "content": content}
    name, given = said
    if name == "shell":
        made = {"type": "shell_call", "id": id, "call_id": id, "status": "completed"}
        return {**made, "action": given}
    call = {"type": "function_call", "id": id, "call_id": id, "name": name}
    return {**call, "arguments": json.dumps(given)}


def agents_model(script: Script) -> Any:
    """A model of the OpenAI Agents SDK, by its own test double."""
    from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
    from openai.types.responses import ResponseFunctionShellToolCall

    def answer(call: ModelCall) -> list[Any]:
        items = call.input if isinstance(call.input, list) else []
        replies = [
            str(item["output"])
            for item in items
            if isinstance(item, dict) and str(item.get("type")).endswith("call_output")
        ]
        said, id = script(replies), f"call_{len(replies)}"
        if isinstance(said, str):
            return [assistant_message(said)]
        if said[0] == "shell":
            return [ResponseFunctionShellToolCall.model_validate(_openai_item(said, id))]
        return [function_call(*said, call_id=id)]

    return ScriptedModel([ModelStep.respond(answer)] * 20)


def pydantic_model(script: Script) -> Any:
    """A model of Pydantic AI, by its own test double."""
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        RetryPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    )
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        replies = [
            str(part.content)
            for message in messages
            for part in message.parts
            if isinstance(part, ToolReturnPart | RetryPromptPart)
        ]
        said = script(replies)
        part = TextPart(said) if isinstance(said, str) else ToolCallPart(*said)
        return ModelResponse(parts=[part])

    return FunctionModel(answer)


def langchain_model(script: Script) -> Any:
    """A chat model of LangChain, on its own fake."""
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            del tools, kwargs
            return self

        def _generate(self, messages: list[BaseMessage], *rest: Any, **more: Any) -> ChatResult:
            del rest, more
            replies = [str(each.content) for each in messages if isinstance(each, ToolMessage)]
            said = script(replies)
            if isinstance(said, str):
                message = AIMessage(said)
            else:
                call = {"name": said[0], "args": said[1], "id": f"call_{len(replies)}"}
                message = AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=message)])

    return Model(messages=iter(()))
