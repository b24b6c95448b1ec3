"""Converting a tool's declaration to each model provider's format, strict where possible."""

from typing import Any, Literal, get_args

from nacre.contracts.contract import ToolSpec

Format = Literal["anthropic", "openai", "mcp"]
FORMATS: tuple[str, ...] = get_args(Format)


def for_provider(spec: ToolSpec, format: Format) -> dict[str, Any]:
    """Return a tool's declaration in a model provider's format. Raises ValueError for an unknown
    format."""
    said: dict[str, Any] = {"name": spec.name, "description": spec.description}
    match format:
        case "anthropic":
            strict = {"strict": True} if _forbid_extra(spec.schema) else {}
            return said | {"input_schema": spec.schema} | strict
        case "mcp":
            return said | {"inputSchema": spec.schema, "outputSchema": spec.reply_schema}
        case "openai":
            strict = {"strict": _forbid_extra(spec.schema)}
            schema = _require_all(spec.schema) if _forbid_extra(spec.schema) else spec.schema
            return {"type": "function", "function": said | {"parameters": schema} | strict}
        case _:
            raise ValueError(f"there is no format {format!r}; formats: {', '.join(FORMATS)}")


def _forbid_extra(schema: dict[str, Any]) -> bool:
    """Return whether a tool's schema fits a provider's strict mode, where an object may have only
    properties that the schema lists."""
    return all(
        each["type"] != "object" or each.get("additionalProperties") is False
        for each in (schema, *schema["properties"].values())
    )


def _strip_unsupported(schema: dict[str, Any]) -> dict[str, Any]:
    return _require_all(schema) if schema["type"] == "object" else schema


def _require_all(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's schema with all properties required, as OpenAI's strict mode demands; a
    property that was optional may be null."""
    return schema | {
        "properties": {
            name: _strip_unsupported(each)
            if name in schema.get("required", ())
            else _allow_null(_strip_unsupported(each))
            for name, each in schema["properties"].items()
        },
        "required": list(schema["properties"]),
    }


def _allow_null(schema: dict[str, Any]) -> dict[str, Any]:
    nullable = schema | {"type": [schema["type"], "null"]}
    if "enum" in schema:
        nullable["enum"] = [*schema["enum"], None]
    return nullable
