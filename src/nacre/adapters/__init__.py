"""A `nacre.Tool` as the agent SDKs want it: one small module each, loaded when you import it.

    from nacre.adapters import anthropic, openai, openai_agents, pydantic_ai, langchain

Each has `tools(tool)`; those for a bare API also `answer`, which turns a model's call into the
message that answers it, and its twin for asyncio, `aanswer`. The SDKs themselves are not installed
with nacre, and are imported only where one of their classes is needed.
"""
