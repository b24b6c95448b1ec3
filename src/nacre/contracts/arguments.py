"""Declaration and parsing of the arguments of a tool call.

A struct declares the arguments of a tool, and both the JSON schema for the model and the parser are
derived from the struct. Models do not always send what a schema declares, so the parser accepts
these values:

- null counts as absent in an optional argument;
- a decimal string counts as a number where a number is expected.

A contract that reads its arguments with `lenient` accepts more:

- an empty string, list or object counts as absent in an optional argument;
- null and these empty values count as absent in a field of an object argument, too; only a value
  in `env` may be an empty string;
- "true" and "false" count as booleans where a boolean is expected;
- a number or a boolean counts as its text in a value of `env`.

Any other argument that does not fit its declaration is refused, with a message that names the
argument, the value and the allowed values.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from nacre.model.ids import check_session_name
from nacre.model.refusals import BadArguments, Refused

T = TypeVar("T", bound=Struct)

_DECIMAL: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_SWITCHES: Final = {"true": True, "false": False}
_MAX_SHOWN: Final = 80  # maximum characters of an argument's value in an error message


class Kind(Struct, frozen=True, kw_only=True):
    """Type of a tool argument: a description in words, a JSON schema, and a conversion function."""

    description: str
    schema: dict[str, Any]
    # converts the value that the model sent; raises ValueError or InvalidValue for a wrong value
    convert: Callable[[Any], Any]


class Field(Struct, frozen=True, kw_only=True):
    name: str
    attribute: str
    kind: Kind
    required: bool


def read_arguments(
    arguments: object,
    shape: type[T],
    *,
    without: tuple[str, ...] = (),
    undeclared: tuple[str, ...] = (),
    lenient: bool = False,
) -> T:
    """Convert the arguments of a tool call to the struct `shape`. Raises Refused, with an
    explanation, for an unknown, invalid or missing argument.

    An argument that is named in `without` is refused as unknown, although the struct declares it. A
    message about an unknown argument does not offer the arguments in `undeclared`. `lenient`
    accepts the values that the docstring of this module lists.
    """
    # `dict` is checked before `Mapping`, because isinstance with an abstract base class is slow.
    if not isinstance(arguments, (dict, Mapping)):
        raise bad_arguments("arguments must be a JSON object, not {}", arguments)
    known, given = argument_fields(shape), {}
    for name, value in arguments.items():
        field = known.get(name)
        if field is None or name in without:
            takes = ", ".join(each for each in known if each not in (*without, *undeclared))
            there = f"there is no argument {name} (given: {{}}); this tool takes {takes}"
            raise bad_arguments(there, value)
        if not field.required and (value is None or (lenient and is_absent(value))):
            continue
        if lenient:
            value = _adapt(value, field.kind.schema)
        try:
            given[field.attribute] = field.kind.convert(value)
        except InvalidValue as wrong:
            where, words, part = wrong.args
            raise bad_arguments(f"{name}{where} must be {words}, not {{}}", part) from None
        except ValueError:
            raise bad_arguments(
                f"{name} must be {field.kind.description}, not {{}}", value
            ) from None
    for name, field in known.items():
        if field.required and field.attribute not in given:
            raise bad_arguments(f"{name} is required")
    return shape(**given)


def is_absent(value: object) -> bool:
    """Return whether a value in place of an optional argument means that the argument is absent:
    null, or an empty string, list or object."""
    return value is None or (isinstance(value, str | list | tuple | Mapping) and not value)


def _adapt(value: Any, schema: dict[str, Any]) -> Any:
    """Return a value that a model probably meant, for an argument with this schema."""
    if schema["type"] == "boolean":
        return adapt_switch(value)
    if schema["type"] == "object" and "properties" not in schema and isinstance(value, Mapping):
        return {name: _adapt_text(each) for name, each in value.items() if each is not None}
    return value


def adapt_switch(value: Any) -> Any:
    """Return the boolean for the text of a boolean, and any other value unchanged."""
    return _SWITCHES.get(value.strip().lower(), value) if isinstance(value, str) else value


def _adapt_text(value: Any) -> Any:
    try:
        return msgspec.json.encode(value).decode() if isinstance(value, int | float) else value
    except (ValueError, OverflowError):  # a number with thousands of digits
        return value


def read_script(command: str) -> bytes:
    """Encode the text of a command for bash. Raises Refused for a command that is blank or has
    invalid characters."""
    if not command.strip():
        raise bad_arguments("command is required")
    return read_bytes(command, "command")


def read_bytes(text: str, name: str) -> bytes:
    """Encode a text argument as bytes for the operating system. Raises Refused for a text with a
    NUL byte or an invalid character."""
    if "\0" in text:
        raise bad_arguments(f"{name} contains a NUL byte; remove it")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        odd = error.object[error.start]
        raise bad_arguments(f"{name} contains {odd!r}, which is no character; remove it") from None


class InvalidValue(Exception):
    """Error in a part of an argument's value; `args` holds the location, the expected type and the
    actual value of the part."""


def bad_arguments(problem: str, value: object = ...) -> Refused:
    """Return the exception that refuses a call because of bad arguments. `{}` in the message
    `problem` is a placeholder for the bad value. The text of a refusal can always be encoded as
    UTF-8, even if the arguments have invalid characters."""
    said = problem.encode("utf-8", "replace").decode()
    return Refused(BadArguments(problem=said, value="{}" if value is ... else shorten_value(value)))


def check_name(argument: str, name: str) -> None:
    """Check the name of a session, the value of `argument`. Raises Refused."""
    try:
        check_session_name(name)
    except ValueError as error:
        raise bad_arguments(f"{argument}: {error}") from None


def shorten_value(value: object) -> str:
    """Return an argument's value as JSON text, cut to 80 characters, for an error message."""
    try:
        odd = isinstance(value, float) and not math.isfinite(value)  # JSON has no infinity or NaN
        text = str(value) if odd else msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def object_schema(shape: type[Struct], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON schema of the struct's fields that are in `descriptions`, each with its
    description for the model."""
    known = argument_fields(shape)
    return {
        "type": "object",
        "properties": {
            name: {**known[name].kind.schema, "description": text}
            for name, text in descriptions.items()
        },
        "required": [name for name in descriptions if known[name].required],
        "additionalProperties": False,
    }


@lru_cache(maxsize=16)
def argument_fields(shape: type[Struct]) -> dict[str, Field]:
    return {
        field.encode_name: Field(
            name=field.encode_name,
            attribute=field.name,
            kind=_kind_of(field.type),
            required=field.required,
        )
        for field in msgspec.structs.fields(shape)
    }


def _kind_of(wanted: Any) -> Kind:
    if get_origin(wanted) is Annotated:
        wanted, *more = get_args(wanted)
        for each in more:
            if isinstance(each, Kind):
                return each
    choices = [each for each in get_args(wanted) if each is not NoneType]
    if get_origin(wanted) is Literal:
        return choice_kind(choices)
    if wanted in _KINDS:
        return _KINDS[wanted]
    if len(choices) == 1:  # optional type: `X | None`
        return _kind_of(choices[0])
    return _KINDS[wanted]


def seconds_kind(least: float, most: float) -> Kind:
    """Return the argument type for a number of seconds from `least` to `most`."""
    return _bounded_kind(least, most, convert_number, "a number of seconds", "number")


def count_kind(least: int, most: int) -> Kind:
    return _bounded_kind(least, most, _convert_count, "a whole number", "integer")


def _bounded_kind(
    least: float, most: float, number: Callable[[Any], float], words: str, kind: str
) -> Kind:
    def take(value: Any) -> float:
        if not least <= (taken := number(value)) <= most:
            raise ValueError
        return taken

    return Kind(
        description=f"{words} from {least:g} to {most:g}",
        schema={"type": kind, "minimum": least, "maximum": most},
        convert=take,
    )


def choice_kind(choices: list[str], undeclared: Sequence[str] = ()) -> Kind:
    """Return the argument type for a string that must be one of `choices`. The strings in
    `undeclared` are accepted too, but neither the schema nor a message names them."""

    def take(value: Any) -> str:
        if value not in choices and value not in undeclared:
            raise ValueError
        return str(value)

    words = ", ".join(f'"{each}"' for each in choices[:-1]) + f' or "{choices[-1]}"'
    return Kind(description=words, schema={"type": "string", "enum": choices}, convert=take)


def _convert_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    # convert to a plain str, because a subclass of str may behave differently later
    return str(value)


def convert_switch(value: Any) -> bool:
    """Convert a boolean. Raises ValueError."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def convert_number(value: Any) -> float:
    if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    try:
        number = float(value)
    except OverflowError:
        raise ValueError from None
    if not math.isfinite(number):
        raise ValueError
    return number


def _convert_count(value: Any) -> int:
    number = convert_number(value)
    if number != int(number) or number < 0:
        raise ValueError
    return int(number)


def _convert_variables(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    for name, each in value.items():
        if not isinstance(name, str) or not isinstance(each, str):
            raise InvalidValue(f".{name}", "a string", each)
    return dict(value)


def _convert_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError
    for place, each in enumerate(value):
        if not isinstance(each, str):
            raise InvalidValue(f"[{place}]", "a string", each)
    return tuple(value)


_KINDS: Final[Mapping[Any, Kind]] = {
    str: Kind(description="a string", schema={"type": "string"}, convert=_convert_text),
    bool: Kind(description="true or false", schema={"type": "boolean"}, convert=convert_switch),
    float: Kind(description="a number", schema={"type": "number"}, convert=convert_number),
    int: Kind(
        description="a whole number, 0 or more", schema={"type": "integer"}, convert=_convert_count
    ),
    tuple[str, ...]: Kind(
        description="a list of strings",
        schema={"type": "array", "items": {"type": "string"}},
        convert=_convert_texts,
    ),
    dict[str, str]: Kind(
        description="an object of strings",
        schema={"type": "object", "additionalProperties": {"type": "string"}},
        convert=_convert_variables,
    ),
}
