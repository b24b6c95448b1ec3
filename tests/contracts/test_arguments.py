"""Tests of arguments: the reply to any arguments has the form that the contract promises."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nacre
from nacre.contracts.arguments import object_schema, read_arguments
from nacre.contracts.phoenix import Bash as Phoenix
from nacre.contracts.pi.contract import Bash as Pi
from nacre.model.refusals import Refused

pytestmark = pytest.mark.slow

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["command", "mode", "slow_ok", "background", "env", "timeout", "cwd", "pty", "async"]
OBJECTS = st.dictionaries(st.sampled_from([*FIELDS, "head", "x", ""]), JSON, max_size=5)


@pytest.mark.parametrize("contract", ["phoenix", "harness", "pi"])
def test_any_arguments_get_a_reply_of_the_contract(contract: str) -> None:
    with nacre.Tool(contract, cwd="/") as tool:

        @settings(max_examples=150)
        @given(OBJECTS.map(lambda each: {**each, "command": 7}) | JSON | OBJECTS)
        def sent(arguments: Any) -> None:
            if isinstance(arguments, dict) and isinstance(arguments.get("command"), str):
                arguments["command"] = ""  # an empty command is refused, so nothing runs
            reply = tool.call(arguments)
            assert reply.is_error
            printed = json.loads(json.dumps(tool.contract.to_json(reply)))
            if contract == "harness":
                assert [*printed] == ["error"]
                assert printed == json.loads(reply.text)
            else:
                flag = "isError" if contract == "pi" else "is_error"
                assert sorted(printed) == sorted(["content", "details", flag])
                assert printed["content"]

        sent()


@pytest.mark.parametrize("contract", ["phoenix", "harness", "pi"])
@pytest.mark.parametrize(
    "command", ["\ud800", "a\udcffb", "\u202e", "\ufeff", "é" * 3, "\x1b[31m", "\r", "#", "\\", "'"]
)
def test_odd_commands_get_a_reply_that_can_be_sent(contract: str, command: str) -> None:
    with nacre.Tool(contract, cwd="/") as tool:
        reply = tool.call({"command": command})
    json.dumps(tool.contract.to_json(reply)).encode()
    reply.text.encode()


def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    for contract in ("phoenix", "pi"):
        with nacre.Tool(contract) as tool:
            reply = tool.call({"command": "ls"}, tool="job")
        assert (reply.text, reply.is_error) == (
            "there is no tool 'job' in this contract; it has bash",
            True,
        )


@given(st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-(10**9), 10**9))
def test_decimal_text_is_the_number_that_it_says(number: float) -> None:
    text = f"{number:.6f}" if isinstance(number, float) else str(number)
    given_as_text = read_arguments({"command": "x", "timeout": text}, Pi)
    given_as_number = read_arguments({"command": "x", "timeout": float(text)}, Pi)
    assert given_as_text == given_as_number


@pytest.mark.parametrize("text", ["", " ", "1,5", "0x10", "1e3", "nan", "inf", "--1", "1 2", "१"])
def test_other_text_is_no_number(text: str) -> None:
    with pytest.raises(Refused) as refused:
        read_arguments({"command": "x", "timeout": text}, Pi)
    said = json.dumps(text, ensure_ascii=False)
    assert str(refused.value) == f"timeout must be a number, not {said}"


# Tests of the schemas.

FORBIDDEN = {"oneOf", "anyOf", "allOf", "not", "$ref", "$defs", "default", "minimum", "maximum"}


def keys(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return set(schema) | {key for each in schema.values() for key in keys(each)}
    if isinstance(schema, list):
        return {key for each in schema for key in keys(each)}
    return set()


@pytest.mark.parametrize("format", ["anthropic", "openai", "mcp"])
@pytest.mark.parametrize(
    ("contract", "options"),
    [
        ("phoenix", {}),
        ("phoenix", {"schema": "booleans"}),
        ("harness", {}),
        ("pi", {}),
        ("pi", {"async": True, "head_tail": True}),
    ],
)
def test_no_construct_that_a_provider_rejects(
    contract: str, options: dict[str, Any], format: Any
) -> None:
    with nacre.Tool(contract, options=options) as tool:
        spec = tool.specs(format)[0]
    function = spec["function"] if format == "openai" else spec
    schema = function[
        {"anthropic": "input_schema", "openai": "parameters", "mcp": "inputSchema"}[format]
    ]
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert not keys(schema) & FORBIDDEN
    assert len(function["description"]) <= 1024 or format != "openai"
    for each in schema["properties"].values():
        assert each["description"]
    strict = contract != "pi"  # pi's `env` is a map, which strict modes do not support
    if format == "openai":
        assert function["strict"] is strict
        if strict:
            assert schema["required"] == list(schema["properties"])
            for name, each in schema["properties"].items():
                assert ("null" in each["type"]) is (name != "command")
    elif format == "anthropic":
        assert spec.get("strict", False) is strict
        assert schema["required"] == ["command"]
    else:
        assert "strict" not in spec


def test_what_openai_sends_in_strict_mode_is_accepted() -> None:
    """Send every field, with null for each omitted field."""
    with nacre.Tool("phoenix") as tool:
        (spec,) = tool.specs("openai")
        sent = dict.fromkeys(spec["function"]["parameters"]["properties"])
        assert tool.call({**sent, "command": "echo hi"}).text == "hi\n"


def test_enums_may_be_null_where_they_may_be_left_out() -> None:
    with nacre.Tool("phoenix") as tool:
        (spec,) = tool.specs("openai")
    assert spec["function"]["parameters"]["properties"]["mode"]["enum"] == [
        "default",
        "slow",
        "background",
        None,
    ]


def test_the_schema_and_what_is_accepted_are_one_declaration() -> None:
    for shape in (Phoenix, Pi):
        told = dict.fromkeys(shape.__struct_encode_fields__, "x")
        schema = object_schema(shape, told)
        for name, each in schema["properties"].items():
            sample = {
                "string": each.get("enum", ["x"])[0],
                "boolean": True,
                "number": 1.5,
                "integer": 2,
                "object": {"A": "b"},
            }[each["type"]]
            read_arguments({"command": "x", name: sample}, shape)
            with pytest.raises(Refused, match=f"{name} must be"):
                read_arguments({"command": "x", name: [sample]}, shape)
