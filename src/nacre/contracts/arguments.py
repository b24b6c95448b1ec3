"""A tool's arguments: one declaration, from which comes what a model is told and what is accepted.

The declaration is a struct. Models send numbers as strings and null for what they leave out: null
means absent where a field may be, a decimal string is a number where one is wanted. All else that
does not fit is refused, by field, value and what is allowed.
"""

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from nacre.refusals import BadArguments, Refused

T = TypeVar("T", bound=Struct)

# What nacre calls otherwise.
_MEANT: Final = {
    **dict.fromkeys(
        ("background", "run_in_background", "detach"), "; wait: 0 starts it and is back"
    ),
    **dict.fromkeys(("timeout_ms", "timeoutMs"), "; timeout is in seconds"),
}

_DECIMAL: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_LONGEST: Final = 80  # characters of a value in a message


class Kind(Struct, frozen=True, kw_only=True):
    """What a field can be: in words, as JSON schema, and how a value is taken."""

    words: str
    schema: dict[str, Any]
    take: Callable[[Any], Any]  # raises ValueError for what it cannot be


class Field(Struct, frozen=True, kw_only=True):
    name: str
    attribute: str
    kind: Kind
    required: bool


def read_arguments(arguments: object, shape: type[T], *, without: tuple[str, ...] = ()) -> T:
    """The arguments as the contract's own type; Refused, in words, when they do not fit.

    `without` are fields of the type that this tool does not have as it is set up.
    """
    if not isinstance(arguments, (dict, Mapping)):  # dict first: an ABC takes its time
        raise bad("arguments must be a JSON object, not {}", arguments)
    known, given = fields(shape), {}
    for name, value in arguments.items():
        field = known.get(name)
        if field is None or name in without:
            takes = ", ".join(each for each in known if each not in without)
            instead = _MEANT.get(str(name), "") if "wait" in known else ""
            there = f"there is no argument {name} (given: {{}}); this tool takes {takes}"
            raise bad(there + instead, value)
        if value is None and not field.required:
            continue
        try:
            given[field.attribute] = field.kind.take(value)
        except Wrong as wrong:
            where, words, part = wrong.args
            raise bad(f"{name}{where} must be {words}, not {{}}", part) from None
        except ValueError:
            raise bad(f"{name} must be {field.kind.words}, not {{}}", value) from None
    for name, field in known.items():
        if field.required and field.attribute not in given:
            raise bad(f"{name} is required")
    return shape(**given)


def read_script(command: str) -> bytes:
    """The command as bash gets it; Refused when it is blank or cannot be one at all."""
    if not command.strip():
        raise bad("command is required")
    return read_bytes(command, "command")


def read_bytes(text: str, name: str) -> bytes:
    """Text as the system gets it; Refused for what no command, path or variable can hold."""
    if "\0" in text:
        raise bad(f"{name} contains a NUL byte, which no {name} can; remove it")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        odd = error.object[error.start]
        raise bad(f"{name} contains {odd!r}, which is no character; remove it") from None


class Wrong(Exception):
    """Something inside of a value is wrong: where, what it must be, what it is."""


def bad(problem: str, value: object = ...) -> Refused:
    """`{}` in the problem stands for the value. Whatever stood in the arguments, the sentence can
    be sent back."""
    said = problem.encode("utf-8", "replace").decode()
    return Refused(BadArguments(problem=said, value="{}" if value is ... else shown(value)))


def shown(value: object) -> str:
    """A value as it was sent, not too much of it."""
    try:
        odd = isinstance(value, float) and not math.isfinite(value)  # JSON has no word for it
        text = str(value) if odd else msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def object_schema(shape: type[Struct], told: Mapping[str, str]) -> dict[str, Any]:
    """The JSON schema of these fields, each with what the model is told about it."""
    known = fields(shape)
    return {
        "type": "object",
        "properties": {
            name: {**known[name].kind.schema, "description": text} for name, text in told.items()
        },
        "required": [name for name in told if known[name].required],
        "additionalProperties": False,
    }


@lru_cache(maxsize=16)
def fields(shape: type[Struct]) -> dict[str, Field]:
    return {
        field.encode_name: Field(
            name=field.encode_name,
            attribute=field.name,
            kind=_kind(field.type),
            required=field.required,
        )
        for field in msgspec.structs.fields(shape)
    }


def _kind(wanted: Any) -> Kind:
    if get_origin(wanted) is Annotated:
        wanted, *more = get_args(wanted)
        for each in more:
            if isinstance(each, Kind):
                return each
    choices = [each for each in get_args(wanted) if each is not NoneType]
    if get_origin(wanted) is Literal:
        return choice(choices)
    if wanted in _KINDS:
        return _KINDS[wanted]
    if len(choices) == 1:  # or nothing
        return _kind(choices[0])
    return _KINDS[wanted]


def seconds(least: float, most: float) -> Kind:
    """A number of them, within bounds that are said."""
    return _within(least, most, _number, "a number of seconds", "number")


def count(least: int, most: int) -> Kind:
    return _within(least, most, _count, "a whole number", "integer")


def _within(
    least: float, most: float, number: Callable[[Any], float], words: str, kind: str
) -> Kind:
    def take(value: Any) -> float:
        if not least <= (taken := number(value)) <= most:
            raise ValueError
        return taken

    return Kind(
        words=f"{words} from {least:g} to {most:g}",
        schema={"type": kind, "minimum": least, "maximum": most},
        take=take,
    )


def choice(choices: list[str], meant: Mapping[str, str] = MappingProxyType({})) -> Kind:
    """One of these. `meant`: what one may have had in mind who says something else."""

    def take(value: Any) -> str:
        if value in choices:
            return str(value)
        if isinstance(value, str) and value in meant:
            raise Wrong("", f'"{meant[value]}" for that', value)
        raise ValueError

    words = ", ".join(f'"{each}"' for each in choices[:-1]) + f' or "{choices[-1]}"'
    return Kind(words=words, schema={"type": "string", "enum": choices}, take=take)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return str(value)  # a subclass may not be what it seems, further down


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _number(value: Any) -> float:
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


def _count(value: Any) -> int:
    number = _number(value)
    if number != int(number) or number < 0:
        raise ValueError
    return int(number)


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    for name, each in value.items():
        if not isinstance(name, str) or not isinstance(each, str):
            raise Wrong(f".{name}", "a string", each)
    return dict(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError
    for place, each in enumerate(value):
        if not isinstance(each, str):
            raise Wrong(f"[{place}]", "a string", each)
    return tuple(value)


_KINDS: Final[Mapping[Any, Kind]] = {
    str: Kind(words="a string", schema={"type": "string"}, take=_text),
    bool: Kind(words="true or false", schema={"type": "boolean"}, take=_switch),
    float: Kind(words="a number", schema={"type": "number"}, take=_number),
    int: Kind(words="a whole number, 0 or more", schema={"type": "integer"}, take=_count),
    tuple[str, ...]: Kind(
        words="a list of strings",
        schema={"type": "array", "items": {"type": "string"}},
        take=_texts,
    ),
    dict[str, str]: Kind(
        words="an object of strings",
        schema={"type": "object", "additionalProperties": {"type": "string"}},
        take=_variables,
    ),
}
