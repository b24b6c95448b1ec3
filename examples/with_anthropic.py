"""An agent on Anthropic's Messages API.

.venv/bin/pip install anthropic; .venv/bin/python examples/with_anthropic.py

Without ANTHROPIC_API_KEY the model is a script; everything else is the same. `--builtin` declares
Anthropic's built-in tool, `bash_20250124`, instead of nacre's tools.
"""

import asyncio
import os
import sys
from typing import Any

import nacre
from nacre.adapters import anthropic
from scripted import TASK, anthropic_client, chosen, recover, shown, workplace


async def converse(client: Any, tool: nacre.Tool, *, builtin: bool) -> str:
    bash = anthropic.Bash(tool)
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        message = await client.messages.create(
            model=os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5-5"),
            max_tokens=2000,
            messages=messages,
            tools=bash.tools if builtin else anthropic.tools(tool),
        )
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in message.content if block.type == "text")
        results = []
        for block in calls:
            result = await (bash.aanswer(block) if builtin else anthropic.aanswer(tool, block))
            shown(block.name, block.input, str(result["content"]))
            results.append(result)
        messages.append({"role": "assistant", "content": message.content})
        messages.append({"role": "user", "content": results})


async def main() -> str:
    if chosen("ANTHROPIC_API_KEY"):
        from anthropic import AsyncAnthropic

        client = AsyncAnthropic()
    else:
        client = anthropic_client(recover)
    async with client:
        with workplace() as place, nacre.Tool(cwd=place) as tool:
            return await converse(client, tool, builtin="--builtin" in sys.argv)


if __name__ == "__main__":
    print(asyncio.run(main()))
