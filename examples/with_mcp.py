"""An agent that meets nacre as an MCP server, with the SDK's own client.

.venv/bin/python examples/with_mcp.py

Without ANTHROPIC_API_KEY the model is a script; with it (and the package anthropic) the tools that
the server lists are given to the real one.
"""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from scripted import TASK, Call, Script, chosen, recover, shown, workplace

NACRE = str(Path(sys.executable).parent / "nacre")


async def converse(client: Client, script: Script) -> str:
    replies: list[str] = []
    while not isinstance(said := script(replies), str):
        name, given = said
        result = await client.call_tool(name, given)
        replies.append("".join(block.text for block in result.content if block.type == "text"))
        shown(name, given, replies[-1])
    return said


async def real(client: Client) -> Script:
    """The real model, as a script: asked again with each reply."""
    from anthropic import Anthropic

    listed = (await client.list_tools()).tools
    tools: Any = [
        {"name": each.name, "description": each.description, "input_schema": each.input_schema}
        for each in listed
    ]
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


async def main() -> str:
    with workplace() as place:
        # A server gets no variables but those that it is given: here, where its state is.
        home = {name: value for name, value in os.environ.items() if name == "NACRE_HOME"}
        server = StdioServerParameters(command=NACRE, args=["mcp"], cwd=place, env=home)
        async with Client(server) as client:
            script = await real(client) if chosen("ANTHROPIC_API_KEY") else recover
            return await converse(client, script)


if __name__ == "__main__":
    print(anyio.run(main))
