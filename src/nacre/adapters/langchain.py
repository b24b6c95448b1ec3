"""Adapter for LangChain and LangGraph.

agent = create_agent(model, tools=langchain.tools(tool))
"""

from typing import TYPE_CHECKING, Any

from nacre.adapters.extras import require
from nacre.contracts.contract import Reply
from nacre.tool.tool import Tool

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool


def tools(tool: Tool) -> "list[StructuredTool]":
    """Return the tools for LangChain. An error reply of the contract becomes a ToolMessage with the
    status `error`. Other replies carry their details in `artifact`."""
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
