"""Converting a tool's declaration to each model provider's format, strict where possible."""

from typing import Any, Final, Literal, get_args

from nacre.contracts.contract import ToolSpec

Format = Literal["anthropic", "openai", "mcp"]
FORMATS: tuple[str, ...] = get_args(Format)


# Keywords of a JSON schema that the strict modes of all providers accept.
_STRICT_KEYWORDS: Final = frozenset(
    ("type", "properties", "required", "additionalProperties", "items", "enum", "description")
)


def for_provider(spec: ToolSpec, format: Format) -> dict[str, Any]:
    """Return a tool's declaration in a model provider's format. Raises ValueError for an unknown
    format."""
    said: dict[str, Any] = {"name": spec.name, "description": spec.description}
    strict = _forbid_extra(spec.schema)
    match format:
        case "anthropic":
            if strict:
                return said | {"input_schema": _without_ranges(spec.schema), "strict": True}
            return said | {"input_schema": spec.schema}
        case "mcp":
            return said | {"inputSchema": spec.schema, "outputSchema": spec.reply_schema}
        case "openai":
            schema = _require_all(_without_ranges(spec.schema)) if strict else spec.schema
            return {
                "type": "function",
                "function": said | {"parameters": schema, "strict": strict},
            }
        case _:
            raise ValueError(f"there is no format {format!r}; formats: {', '.join(FORMATS)}")


def _without_ranges(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's schema without the keywords that a strict mode refuses, such as `minimum`.
    The descriptions of the arguments state the ranges."""
    accepted = {name: value for name, value in schema.items() if name in _STRICT_KEYWORDS}
    if "properties" in accepted:
        accepted["properties"] = {
            name: _without_ranges(each) for name, each in accepted["properties"].items()
        }
    if "items" in accepted:
        accepted["items"] = _without_ranges(accepted["items"])
    return accepted


def _forbid_extra(schema: dict[str, Any]) -> bool:
    """Return whether a tool's schema fits a provider's strict mode, where an object may have only
    properties that the schema lists."""
    return all(
        each["type"] != "object" or each.get("additionalProperties") is False
        for each in (schema, *schema["properties"].values())
    )


def _require_inside(schema: dict[str, Any]) -> dict[str, Any]:
    return _require_all(schema) if schema["type"] == "object" else schema


def _require_all(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's schema with all properties required, as OpenAI's strict mode demands; a
    property that was optional may be null."""
    return schema | {
        "properties": {
            name: _require_inside(each)
            if name in schema.get("required", ())
            else _allow_null(_require_inside(each))
            for name, each in schema["properties"].items()
        },
        "required": list(schema["properties"]),
    }


def _allow_null(schema: dict[str, Any]) -> dict[str, Any]:
    nullable = schema | {"type": [schema["type"], "null"]}
    if "enum" in schema:
        nullable["enum"] = [*schema["enum"], None]
    return nullable
