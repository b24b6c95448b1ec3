"""Adapter for LangChain and LangGraph.

Example:

    agent = create_agent(model, tools=langchain.tools(tool))
"""

from typing import TYPE_CHECKING, Any

from nacre.adapters.extras import require
from nacre.contracts.contract import Reply
from nacre.tool.tool import Tool

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool


def tools(tool: Tool) -> "list[StructuredTool]":
    """Return nacre's tools as LangChain tools. An error reply of nacre becomes a LangChain
    `ToolMessage` with the status `error`; any other reply carries its details in the message's
    `artifact`."""
    with require("langchain-core"):
        from langchain_core.tools import StructuredTool, ToolException

    def to_content(reply: Reply) -> tuple[str, dict[str, Any]]:
        if reply.is_error:
            raise ToolException(reply.text)
        return reply.text, reply.details

    def build(name: str) -> Any:
        async def acall(**given: Any) -> tuple[str, dict[str, Any]]:
            return to_content(await tool.acall(given, tool=name))

        return {"func": lambda **given: to_content(tool.call(given, tool=name)), "coroutine": acall}

    return [
        StructuredTool(
            name=spec["name"],
            description=spec["description"],
            args_schema=spec["input_schema"],
            response_format="content_and_artifact",
            handle_tool_error=True,
            **build(spec["name"]),
        )
        for spec in tool.specs("anthropic")
    ]
