"""An agent built with LangChain.

.venv/bin/pip install langchain langchain-anthropic; .venv/bin/python examples/with_langchain.py

Without ANTHROPIC_API_KEY the model is a script, and the package langchain-anthropic is not needed.
Everything else is the same.
"""

import asyncio
from typing import Any

from langchain.agents import create_agent

import nacre
from nacre.adapters import langchain
from scripted import TASK, chosen, langchain_model, recover, shown, workplace


async def main() -> str:
    real = chosen("ANTHROPIC_API_KEY")
    model: Any = "anthropic:claude-sonnet-5-5" if real else langchain_model(recover)
    with workplace() as place, nacre.Tool(cwd=place) as tool:
        agent: Any = create_agent(model, tools=langchain.tools(tool))
        state = await agent.ainvoke({"messages": [{"role": "user", "content": TASK}]})
        for message in state["messages"]:
            if message.type == "tool":
                shown(message.name, "", str(message.content))
        return str(state["messages"][-1].content)


if __name__ == "__main__":
    print(asyncio.run(main()))
