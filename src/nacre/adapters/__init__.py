"""Adapters that turn a `nacre.Tool` into the tools of agent SDKs: one small module per SDK.

    from nacre.adapters import anthropic, openai, openai_agents, pydantic_ai, langchain

Each adapter module has a function `tools(tool)`, which returns nacre's tools in the form that its
SDK accepts. The adapter modules `anthropic` and `openai` have a function `answer`, which runs a
model's tool call and returns the message with the result. The function `aanswer` is the asyncio
version of `answer`, which runs a model's tool call. The agent SDKs are not installed with nacre: an
adapter imports its SDK only where it needs a class of the SDK.
"""
