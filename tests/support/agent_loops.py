"""A complete conversation in each agent SDK, with the SDK's client, a fake model and nacre's tool.

Each function takes a script (see `examples/scripted.py`) that plays the model. It returns the tool
results that the model received, with the provider's error flag if the provider has one.
"""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import nacre
from nacre.adapters import anthropic, langchain, openai, openai_agents, pydantic_ai
from scripted import (
    Script,
    agents_model,
    anthropic_client,
    langchain_model,
    openai_client,
    pydantic_model,
)


class Told(NamedTuple):
    text: str
    error: bool | None  # None: the provider has no error flag


Loop = Callable[[nacre.Tool, Script], Coroutine[Any, Any, list[Told]]]


async def with_anthropic(tool: nacre.Tool, script: Script) -> list[Told]:
    return await _messages(
        script, anthropic.tools(tool), lambda block: anthropic.aanswer(tool, block)
    )


async def with_builtin_bash(tool: nacre.Tool, script: Script) -> list[Told]:
    bash = anthropic.Bash(tool)
    return await _messages(script, bash.tools, bash.aanswer)


async def _messages(script: Script, tools: Any, answer: Callable[[Any], Any]) -> list[Told]:
    told: list[Told] = []
    messages: list[Any] = [{"role": "user", "content": "go"}]
    async with anthropic_client(script) as client:
        while True:
            message = await client.messages.create(
                model="script", max_tokens=9, messages=messages, tools=tools
            )
            if message.stop_reason != "tool_use":
                return told
            (block,) = message.content
            result = await answer(block)
            told.append(Told(result["content"], result["is_error"]))
            messages.append({"role": "assistant", "content": message.content})
            messages.append({"role": "user", "content": [result]})


async def with_tool_runner(tool: nacre.Tool, script: Script) -> list[Told]:
    told: list[Told] = []
    async with anthropic_client(script) as client:
        runner = client.beta.messages.tool_runner(
            model="script",
            max_tokens=9,
            messages=[{"role": "user", "content": "go"}],
            tools=anthropic.arunnable(tool),
        )
        async for _ in runner:
            answered = await runner.generate_tool_call_response()
            for block in answered["content"] if answered else ():
                told.append(Told(block["content"], block.get("is_error", False)))
    return told


async def with_openai(tool: nacre.Tool, script: Script) -> list[Told]:
    told: list[Told] = []
    items: list[Any] = [{"role": "user", "content": "go"}]
    async with openai_client(script) as client:
        while True:
            response = await client.responses.create(
                model="script", input=items, tools=openai.tools(tool)
            )
            (item,) = response.output
            if item.type != "function_call":
                return told
            answer = await openai.aanswer(tool, item)
            told.append(Told(str(answer["output"]), None))
            items += [item.model_dump(exclude_none=True), answer]


async def with_openai_agents(tool: nacre.Tool, script: Script) -> list[Told]:
    import agents

    agents.set_tracing_disabled(True)
    made: Any = openai_agents.tools(tool)
    agent = agents.Agent(name="dev", model=agents_model(script), tools=made)
    result = await agents.Runner.run(agent, "go")
    return [
        Told(str(item.output), None)
        for item in result.new_items
        if item.type == "tool_call_output_item"
    ]


async def with_pydantic_ai(tool: nacre.Tool, script: Script) -> list[Told]:
    import pydantic_ai as sdk

    agent = sdk.Agent(pydantic_model(script), tools=pydantic_ai.tools(tool))
    result = await agent.run("go")
    return [
        Told(str(part.content), part.outcome == "failed")
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, sdk.ToolReturnPart)
    ]


async def with_langchain(tool: nacre.Tool, script: Script) -> list[Told]:
    from langchain.agents import create_agent

    agent: Any = create_agent(langchain_model(script), tools=langchain.tools(tool))
    state = await agent.ainvoke({"messages": [{"role": "user", "content": "go"}]})
    return [
        Told(str(message.content), message.status == "error")
        for message in state["messages"]
        if message.type == "tool"
    ]


LOOPS: dict[str, Loop] = {
    "anthropic": with_anthropic,
    "anthropic, tool runner": with_tool_runner,
    "openai": with_openai,
    "openai agents": with_openai_agents,
    "pydantic ai": with_pydantic_ai,
    "langchain": with_langchain,
}
