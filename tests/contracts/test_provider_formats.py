"""Tests that the tools' declarations fit the schema subsets that the model providers publish."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import nacre
from nacre.contracts import registry

OPTIONS: dict[str, dict[str, Any]] = {"pi": {"async": True}}


class Subset(NamedTuple):
    """Subset of JSON schema that a provider accepts together with `strict: true`."""

    keywords: frozenset[str]
    all_required: bool  # whether every property must be required
    max_optional: int | None  # maximum number of optional properties of all strict tools together
    max_properties: int  # maximum number of properties in one schema


# The keywords that every model of the provider accepts in strict mode. Both providers refuse
# `minLength`, `maxLength`, `pattern`, `minimum`, `maximum`, `minItems`, `default` and others in at
# least one of their models.
STRUCTURE = frozenset(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "description",
        "title",
    ]
)
STRICT = {
    "openai": Subset(STRUCTURE, all_required=True, max_optional=None, max_properties=5000),
    "anthropic": Subset(STRUCTURE, all_required=False, max_optional=24, max_properties=5000),
}
# Keywords of a declaration that is not strict.
LOOSE = STRUCTURE | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern"}


def declarations(contract: str, format: Any) -> list[tuple[dict[str, Any], bool]]:
    """Return the schema of each tool's arguments, and whether the declaration is strict."""
    with nacre.Tool(contract, options=OPTIONS.get(contract, {})) as tool:
        specs = tool.specs(format=format)
    if format == "openai":
        return [(each["function"]["parameters"], each["function"]["strict"]) for each in specs]
    return [(each["input_schema"], each.get("strict", False)) for each in specs]


def walk(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for each in schema.get("properties", {}).values():
        yield from walk(each)
    for each in [schema.get("items"), schema.get("additionalProperties")]:
        if isinstance(each, dict):
            yield from walk(each)


@pytest.mark.parametrize("format", STRICT)
@pytest.mark.parametrize("contract", registry.contract_names())
def test_a_strict_declaration_has_only_what_the_provider_accepts(
    contract: str, format: str
) -> None:
    subset, optional = STRICT[format], 0
    for schema, strict in declarations(contract, format):
        for each in walk(schema):
            assert set(each) <= (subset.keywords if strict else LOOSE)
            if not strict or "properties" not in each:
                continue
            assert each["additionalProperties"] is False
            assert len(each["properties"]) <= subset.max_properties
            missing = set(each["properties"]) - set(each["required"])
            assert not (subset.all_required and missing)
            optional += len(missing)
    assert subset.max_optional is None or optional <= subset.max_optional


def test_strict_declarations_exist() -> None:
    strict = {
        (contract, format)
        for contract in registry.contract_names()
        for format in STRICT
        for _, is_strict in declarations(contract, format)
        if is_strict
    }
    assert {("nacre", "openai"), ("nacre", "anthropic"), ("harness", "openai")} <= strict


@pytest.mark.slow
def test_a_call_with_every_field_of_the_strict_form_is_accepted() -> None:
    """In OpenAI's strict form, a model sends null for every field that it does not use."""
    with nacre.Tool() as tool:
        (_, job) = tool.specs(format="openai")
        properties = job["function"]["parameters"]["properties"]
        nothing: dict[str, Any] = dict.fromkeys(properties)
        assert tool.call({**nothing, "action": "list"}, tool="job").text == "(no runs)"
        inner = dict.fromkeys(properties["until"]["properties"])
        arguments = {"command": "echo ready; sleep 60.1", "until": {**inner, "output": "ready"}}
        reply = tool.call({**dict.fromkeys(["cwd", "env", "stdin", "session"]), **arguments})
        assert reply.details["until"]["line"] == 1
        wait = {**nothing, "action": "wait", "run": "r1", "until": {**inner, "output": "ready"}}
        assert tool.call(wait, tool="job").details["until"]["line"] == 1
        tool.call({"action": "signal", "run": "r1"}, tool="job")


def test_what_is_not_available_is_not_declared() -> None:
    with nacre.Tool() as tool:
        bash, job = tool.specs()
    assert "pty" not in bash["input_schema"]["properties"]
    assert "keys" not in job["input_schema"]["properties"]
    assert "screen" not in job["input_schema"]["properties"]["action"]["enum"]


def test_descriptions_are_short_and_say_what_models_get_wrong() -> None:
    with nacre.Tool() as tool:
        bash, job = tool.specs()
    assert len(bash["description"]) <= 673
    assert len(job["description"]) <= 717
    text = str(bash)
    for fact in (
        "without &",
        "NOT a timeout",
        "`timeout` kills, also in the background",
        "do not last",
        "literal",
        "Directory of this call",
        "secrets are withheld",
        "created on first use",
        "one after another",
    ):
        assert fact in text
