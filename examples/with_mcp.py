"""An agent that uses nacre as an MCP server, through the client of the MCP SDK.

.venv/bin/python examples/with_mcp.py

Without ANTHROPIC_API_KEY the model is a script. With the key and the package anthropic, the real
model gets the tools that the server lists.
"""

import os
import sys
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters

from scripted import Script, model, shown, workplace

NACRE = str(Path(sys.executable).parent / "nacre")


async def converse(client: Client, script: Script) -> str:
    replies: list[str] = []
    while not isinstance(said := script(replies), str):
        name, given = said
        result = await client.call_tool(name, given)
        replies.append("".join(block.text for block in result.content if block.type == "text"))
        shown(name, given, replies[-1])
    return said


async def main() -> str:
    with workplace() as place:
        # The server gets only the variables in `env`: here, the path of nacre's state directory.
        home = {name: value for name, value in os.environ.items() if name == "NACRE_HOME"}
        server = StdioServerParameters(command=NACRE, args=["mcp"], cwd=place, env=home)
        async with Client(server) as client:
            tools = [
                {
                    "name": each.name,
                    "description": each.description,
                    "input_schema": each.input_schema,
                }
                for each in (await client.list_tools()).tools
            ]
            return await converse(client, model(tools))


if __name__ == "__main__":
    print(anyio.run(main))
