"""A tool's declaration in the shape that each provider wants, strict where it can be."""

from typing import Any, Literal, get_args

from nacre.contracts.contract import ToolSpec

Format = Literal["anthropic", "openai", "mcp"]
FORMATS: tuple[str, ...] = get_args(Format)


def shaped(spec: ToolSpec, format: Format) -> dict[str, Any]:
    """Raises ValueError for a format that there is not."""
    said: dict[str, Any] = {"name": spec.name, "description": spec.description}
    match format:
        case "anthropic":
            strict = {"strict": True} if _closed(spec.schema) else {}
            return said | {"input_schema": spec.schema} | strict
        case "mcp":
            return said | {"inputSchema": spec.schema, "outputSchema": spec.shape}
        case "openai":
            strict = {"strict": _closed(spec.schema)}
            schema = _all_required(spec.schema) if _closed(spec.schema) else spec.schema
            return {"type": "function", "function": said | {"parameters": schema} | strict}
        case _:
            raise ValueError(f"there is no format {format!r}; there is {', '.join(FORMATS)}")


def _closed(schema: dict[str, Any]) -> bool:
    """Strict modes know no maps: every object must name all that it may hold."""
    return all(
        each["type"] != "object" or each.get("additionalProperties") is False
        for each in (schema, *schema["properties"].values())
    )


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    return _all_required(schema) if schema["type"] == "object" else schema


def _all_required(schema: dict[str, Any]) -> dict[str, Any]:
    """In OpenAI's strict mode nothing is left out: what may be absent may be null instead."""
    return schema | {
        "properties": {
            name: _whole(each) if name in schema.get("required", ()) else _or_null(_whole(each))
            for name, each in schema["properties"].items()
        },
        "required": list(schema["properties"]),
    }


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    made = schema | {"type": [schema["type"], "null"]}
    if "enum" in schema:
        made["enum"] = [*schema["enum"], None]
    return made
