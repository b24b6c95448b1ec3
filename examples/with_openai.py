"""An agent on OpenAI's Responses API.

.venv/bin/pip install openai; .venv/bin/python examples/with_openai.py

Without OPENAI_API_KEY the model is a script; everything else is the same.
"""

import asyncio
import os
from typing import Any

import nacre
from nacre.adapters import openai
from scripted import TASK, chosen, openai_client, recover, shown, workplace


async def converse(client: Any, tool: nacre.Tool) -> str:
    items: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        response = await client.responses.create(
            model=os.environ.get("OPENAI_MODEL", "gpt-5.5"), input=items, tools=openai.tools(tool)
        )
        items += [item.model_dump(exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return str(response.output_text)
        for call in calls:
            answer = await openai.aanswer(tool, call)
            shown(call.name, call.arguments, str(answer["output"]))
            items.append(answer)


async def main() -> str:
    if chosen("OPENAI_API_KEY"):
        from openai import AsyncOpenAI

        client = AsyncOpenAI()
    else:
        client = openai_client(recover)
    async with client:
        with workplace() as place, nacre.Tool(cwd=place) as tool:
            return await converse(client, tool)


if __name__ == "__main__":
    print(asyncio.run(main()))
