"""Tool: joins a contract and an engine."""

# Not from typing, which costs a third of what importing nacre may take.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nacre.tool.tool import Tool as Tool

__all__ = ["Tool"]


def __getattr__(name: str) -> object:
    if name != "Tool":
        raise AttributeError(f"module 'nacre.tool' has no attribute {name!r}")
    from nacre.tool.tool import Tool

    return Tool
