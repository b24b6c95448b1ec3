"""An agent built with Pydantic AI.

.venv/bin/pip install pydantic-ai; .venv/bin/python examples/with_pydantic_ai.py

Without ANTHROPIC_API_KEY the model is a script; everything else is the same.
"""

import asyncio
from typing import Any

from pydantic_ai import Agent

import nacre
from nacre.adapters import pydantic_ai
from scripted import TASK, chosen, pydantic_model, recover, shown, workplace


async def main() -> str:
    real = chosen("ANTHROPIC_API_KEY")
    model: Any = "anthropic:claude-sonnet-5-5" if real else pydantic_model(recover)
    with workplace() as place, nacre.Tool(cwd=place) as tool:
        result = await Agent(model, tools=pydantic_ai.tools(tool)).run(TASK)
        for message in result.all_messages():
            for part in message.parts:
                if part.part_kind == "tool-return":
                    shown(part.tool_name, "", str(part.content))
        return str(result.output)


if __name__ == "__main__":
    print(asyncio.run(main()))
