"""Adapters that turn a `nacre.Tool` into the tools of agent SDKs: one small module per SDK.

    from nacre.adapters import anthropic, openai, openai_agents, pydantic_ai, langchain

Each module has a function `tools(tool)`. Modules for a bare API also have `answer`, which turns a
model's tool call into the answering message. `aanswer` is the asyncio version of `answer`. nacre
does not install the SDKs. An adapter imports its SDK only where it needs a class of the SDK.
"""
