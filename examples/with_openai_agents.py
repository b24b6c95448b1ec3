"""An agent built with the OpenAI Agents SDK.

.venv/bin/pip install openai-agents; .venv/bin/python examples/with_openai_agents.py

Without OPENAI_API_KEY the model is a script; everything else is the same.
"""

import asyncio

from agents import Agent, Runner, set_tracing_disabled

import nacre
from nacre.adapters import openai_agents
from scripted import TASK, agents_model, chosen, recover, shown, workplace


async def main() -> str:
    with workplace() as place, nacre.Tool(cwd=place) as tool:
        agent = Agent(name="dev", tools=list(openai_agents.tools(tool)))
        if not chosen("OPENAI_API_KEY"):
            set_tracing_disabled(True)
            agent.model = agents_model(recover)
        result = await Runner.run(agent, TASK)
        for item in result.new_items:
            if item.type == "tool_call_output_item":
                shown("tool", "", str(item.output))
        return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(main()))
