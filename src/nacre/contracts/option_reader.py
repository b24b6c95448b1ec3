"""Parsing the options of a contract (tool dialect) from a program, a settings file or a command
line.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo

from nacre.text.similar_names import did_you_mean

T = TypeVar("T", bound=Struct)

# Marks of options: each mark says which change makes an option tighter (stricter). `nacre.settings`
# lets the settings file of a workspace change an option only to a tighter value.
LESS = {"tighter": "less"}  # a lower number makes the option tighter (stricter)
MORE = {"tighter": "more"}  # a longer list makes the option tighter (stricter)
# A later value in the list of choices makes the option tighter (stricter).
LATER = {"tighter": "later"}
OFF = {"tighter": "off"}  # the value false makes the option tighter (stricter)

Seconds = Annotated[float, Meta(ge=0, extra=LESS)]
Limit = Annotated[float, Meta(gt=0, extra=LESS)]  # maximum seconds that a command may run


@lru_cache(maxsize=32)
def struct_fields(shape: type[Struct]) -> tuple[FieldInfo, ...]:
    """Return the fields of a msgspec struct type. The fields are cached, because msgspec would
    evaluate the annotations of the struct type at each call, which takes half as long as running a
    command."""
    return msgspec.structs.fields(shape)


def read_options(options: Mapping[str, Any], shape: type[T], *, strict: bool = False) -> T:
    """Convert the options of a contract (tool dialect) to the struct type `shape`. Raises
    ValueError for an unknown option or an invalid value. The error message for an unknown option
    suggests the most similar valid name.

    Unless `strict` is True, an option's value may be text from a command line, such as `on`."""
    fields = struct_fields(shape)
    known = [field.encode_name for field in fields]
    for key in options:
        if key not in known:
            hint = did_you_mean(key, known) or f"choose from {', '.join(known)}"
            raise ValueError(f"there is no option {key!r}; {hint}")
    types = {field.encode_name: field.type for field in fields}
    given = {key: replace_switch(value, types[key]) for key, value in options.items()}
    try:
        if strict:
            return msgspec.convert(given, shape)
        given = {key: _parse_value(key, value, types[key]) for key, value in given.items()}
        return msgspec.convert(given, shape, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"bad option: {_describe_error(str(error), shape)}") from None


_SWITCHES = {"on": True, "off": False, "yes": True, "no": False}


def replace_switch(value: Any, wanted: Any) -> Any:
    """Return the value of an option. For a number option that also accepts a switch, `true` becomes
    the option's usual number, and `false` becomes None. All other values stay unchanged."""
    stands_for = find_mark(wanted, "true")
    if stands_for is None:
        return value
    switch = (
        {**_SWITCHES, "true": True, "false": False}.get(value) if isinstance(value, str) else value
    )
    if not isinstance(switch, bool):
        return value
    return stands_for if switch else None


def find_mark(wanted: Any, name: str) -> Any:
    """Return the value that the type annotation `wanted` of an option has under `name` in its
    metadata, or None."""
    for each in (wanted, *get_args(wanted)):
        if get_origin(each) is Annotated:
            for meta in get_args(each)[1:]:
                if isinstance(meta, Meta) and meta.extra is not None:
                    return meta.extra.get(name)
    return None


def _parse_value(key: str, value: Any, wanted: Any) -> Any:
    """Parse an option's value from a command line: `on` or `off`, a comma-separated list, or
    JSON."""
    if not isinstance(value, str):
        return value
    if get_origin(wanted) is Annotated:
        wanted = get_args(wanted)[0]
    if wanted is bool:
        return _SWITCHES.get(value.lower(), value)
    if get_origin(wanted) is not tuple:
        return value
    if not value.startswith(("[", "{")):
        listed = [each.strip() for each in value.split(",")]
        return [] if value in ("", "off", "none") else listed
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise ValueError(f"{key} is not JSON: {error}") from None


_WRONG_TYPE = re.compile(r"Expected `(.+?)`, got `(.+?)` - at `\$\.?(.*)`")
_MISSING = re.compile(r"Object missing required field `(.+?)`(?: - at `\$\.(.*)`)?")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+?)` - at `\$\.(.*)`")
_NO_CHOICE = re.compile(r"Invalid enum value (.+?) - at `\$\.(.*)`")
_BOUND = re.compile(r"Expected `(.+?)` (>=|<=|>|<) ([\d.]+) - at `\$\.(.*)`")
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def _describe_error(problem: str, shape: type) -> str:
    """Turn a validation error message of msgspec into a plain sentence about the bad option."""
    if wrong := _WRONG_TYPE.match(problem):
        wanted, got, where = wrong.groups()
        wanted = " or ".join(_WORDS.get(each, each) for each in wanted.split(" | "))
        return f"{where} must be {wanted}, not {_WORDS.get(got, got)}"
    if bound := _BOUND.match(problem):
        number = float(bound[3])
        return f"{bound[4]} must be {_BOUNDS[bound[2]]} {number:g}"
    if choice := _NO_CHOICE.match(problem):
        types = {field.encode_name: field.type for field in struct_fields(shape)}
        wanted = types.get(choice[2])
        wanted = get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted
        allowed = ", ".join(map(str, get_args(wanted)))
        return f"{choice[2]} cannot be {choice[1]}; it can be {allowed}"
    if missing := _MISSING.match(problem):
        return f"{missing[2]} needs {missing[1]}" if missing[2] else f"{missing[1]} is required"
    if unknown := _UNKNOWN.match(problem):
        return f"{unknown[2]} has an unknown field {unknown[1]}; remove it"
    return problem
