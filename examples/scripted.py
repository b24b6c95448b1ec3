"""A scripted model for each SDK, so that the examples run without an API key.

A script is a function. The script gets all replies so far, as a model would, and returns the next
tool call or a final answer. `chosen(KEY)` returns whether the environment contains an API key. With
a key, the examples ask the real model.
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any]]  # name of the tool, and its arguments
Script = Callable[[list[str]], Call | str]

TASK = "In this directory, `bash check.sh` fails. Make it pass, run it again, then say what it was."
CHECK = 'grep -qx hello greeting.txt || { echo "greeting.txt must say hello"; exit 1; }; echo ok\n'


def workplace() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory with the files of the task."""
    place = tempfile.TemporaryDirectory(prefix="nacre-example-")
    (Path(place.name) / "check.sh").write_text(CHECK)
    return place


def recover(replies: list[str]) -> Call | str:
    """Follow the script of the task: run the check, fix the file, run the check again."""
    if not replies:
        return "bash", {"command": "bash check.sh"}
    if "must say hello" in replies[-1]:
        return "bash", {"command": "echo hello > greeting.txt; bash check.sh"}
    return f"It passes now: {replies[-1].strip()}"


def chosen(key: str) -> bool:
    """Return whether the environment has this API key, so that the real model is asked."""
    return bool(os.environ.get(key))


def shown(name: str, arguments: object, reply: str) -> None:
    print(f"→ {name} {arguments}\n{reply.rstrip()}\n")


def model(tools: Any) -> Script:
    """Return the model for front ends without an agent SDK. Without ANTHROPIC_API_KEY, the model is
    a script. With the key and the package anthropic, the returned function asks the real model,
    passing these tools and the last reply."""
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


# Scripted clients and models of the SDKs. Each function imports only its own SDK.


def anthropic_client(script: Script) -> Any:
    """Return an `AsyncAnthropic` client whose API responses come from a script."""
    import anthropic
    import httpx2

    http = httpx2.AsyncClient(transport=anthropic_api(script))
    return anthropic.AsyncAnthropic(api_key="none", http_client=http)


def anthropic_api(script: Script) -> Any:
    """Return an HTTP transport that answers in place of the API, for any client."""
    import httpx2

    seen: dict[str, str] = {}  # replies by call id; some clients send only new replies

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
    """Return an `AsyncOpenAI` client whose API responses come from a script."""
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
    """Return a scripted model of the OpenAI Agents SDK, built on the SDK's own test double."""
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
    """Return a scripted model of Pydantic AI, built on the library's own test double."""
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
    """Return a scripted chat model of LangChain, built on the library's own fake model."""
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
