"""The shell tool of an agent: connects a contract (dialect of the tool) with the engine that runs
commands. The class `Tool` is imported lazily."""

# TYPE_CHECKING is not imported from `typing`, because importing `typing` takes a third of the time
# allowed for importing nacre.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nacre.tool.tool import Tool as Tool

__all__ = ["Tool"]


def __getattr__(name: str) -> object:
    if name != "Tool":
        raise AttributeError(f"module 'nacre.tool' has no attribute {name!r}")
    from nacre.tool.tool import Tool

    return Tool
