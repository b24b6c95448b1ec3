"""Adapter for Pydantic AI.

Example:

    agent = Agent("anthropic:...", tools=pydantic_ai.tools(tool))
"""

from typing import TYPE_CHECKING, Any

from nacre.adapters.extras import require
from nacre.tool.tool import Tool

if TYPE_CHECKING:
    import pydantic_ai


def tools(tool: Tool) -> "list[pydantic_ai.Tool[Any]]":
    """Return nacre's tools as Pydantic AI tools. An error reply of nacre becomes a failed tool
    call, which the model sees; any other reply becomes a `ToolReturn` whose `metadata` holds the
    details of the reply."""
    with require("pydantic-ai"):
        import pydantic_ai

    def build(name: str) -> Any:
        async def call(**given: Any) -> pydantic_ai.ToolReturn[str]:
            reply = await tool.acall(given, tool=name)
            if reply.is_error:
                raise pydantic_ai.ToolFailed(reply.text)
            return pydantic_ai.ToolReturn(reply.text, metadata=reply.details)

        return call

    return [
        pydantic_ai.Tool.from_schema(
            build(spec["name"]), spec["name"], spec["description"], spec["input_schema"]
        )
        for spec in tool.specs("anthropic")
    ]
