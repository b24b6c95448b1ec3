"""Parsing of the tool argument `until`: conditions that end a wait before the run has ended."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from nacre.contracts.arguments import (
    InvalidValue,
    Kind,
    adapt_switch,
    convert_switch,
    count_kind,
    is_absent,
    read_bytes,
    seconds_kind,
)
from nacre.model.wait_conditions import (
    NO_CONDITIONS,
    Condition,
    Conditions,
    FileExists,
    HttpAnswers,
    OutputIdle,
    OutputMatches,
    PortOpen,
)
from nacre.text.search import compile_pattern

MAX_WAIT: Final = 900.0


def _convert_until(value: Any) -> Conditions:
    """Convert the argument `until`: a JSON object with one or more conditions, or a list of such
    objects. Each of the objects may also have `all` and `then`."""
    listed = value if isinstance(value, list | tuple) else (value,)
    listed = [each for each in listed if not is_absent(each)]
    if not all(isinstance(each, Mapping) for each in listed):
        raise ValueError
    given = [(name, each) for one in listed for name, each in one.items() if not is_absent(each)]
    found = NO_CONDITIONS
    for name, each in given:
        match name:
            case "all":
                found = replace(
                    found, all=_convert_part("all", convert_switch, adapt_switch(each)) or found.all
                )
            case "then":
                found = replace(found, end_run=_convert_part("then", _check_then, each))
            case _:
                found = replace(found, listed=(*found.listed, _build_condition(name, each)))
    if not found.listed and (found.all or found.end_run):
        raise ValueError  # `all` or `then` without a condition
    return found if found.listed else NO_CONDITIONS


def _check_then(value: Any) -> bool:
    if value not in ("end", "return"):
        raise ValueError
    return bool(value == "end")


def _convert_part(name: str, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except (ValueError, TypeError):
        raise InvalidValue(f".{name}", _UNTIL_DESCRIPTIONS[name], value) from None


def _build_condition(name: str, value: Any) -> Condition:
    take = _CONDITIONS.get(name)
    if take is None:
        fields = ", ".join(_UNTIL_DESCRIPTIONS)
        raise InvalidValue("", f"an object with only the fields {fields}", name)
    condition: Condition = _convert_part(name, take, value)
    return condition


def _check_output(value: Any) -> Condition:
    if not isinstance(value, str):
        raise ValueError
    try:
        compile_pattern(value)
    except re.error as error:
        raise InvalidValue(".output", f"a regular expression ({error})", value) from None
    return OutputMatches(value)


def _check_http(value: Any) -> Condition:
    if not isinstance(value, str) or any(c <= " " for c in value):
        raise ValueError
    from urllib.parse import urlsplit  # lazy import: few calls wait for a URL

    url = urlsplit(value)
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
        raise ValueError
    value.encode("ascii")
    return HttpAnswers(value)


def _check_file(value: Any) -> Condition:
    if not isinstance(value, str) or not value:
        raise ValueError
    return FileExists(read_bytes(value, "until.file"))


_CONDITIONS: Final[dict[str, Callable[[Any], Condition]]] = {
    "output": _check_output,
    "port": lambda value: PortOpen(count_kind(1, 65535).convert(value)),
    "http": _check_http,
    "file": _check_file,
    "idle": lambda value: OutputIdle(seconds_kind(0.1, MAX_WAIT).convert(value)),
}
_UNTIL_DESCRIPTIONS: Final = {
    "output": "a regular expression",
    "port": "a port, 1 to 65535",
    "http": "a URL, http:// or https://",
    "file": "a path",
    "idle": f"a number of seconds from 0.1 to {MAX_WAIT:g}",
    "all": "true or false",
    "then": '"return" or "end"',
}
UNTIL: Final = Kind(
    description=f"an object with one or more of {', '.join(_CONDITIONS)}",
    schema={
        "type": "object",
        "properties": {
            "output": {"type": "string", "description": "Regex that a line matches"},
            "port": {"type": "integer", "description": "TCP port on which the run listens"},
            "http": {"type": "string", "description": "URL that answers with a status below 500"},
            "file": {"type": "string", "description": "Path that exists"},
            "idle": {"type": "number", "description": "Seconds without output"},
            "all": {"type": "boolean", "description": "Return when all are met"},
            "then": {
                "type": "string",
                "enum": ["return", "end"],
                "description": "end: also end the run",
            },
        },
        "required": [],
        "additionalProperties": False,
    },
    convert=_convert_until,
)

# The tool `job` has its own argument `all`, so its declaration of `until` has none: a provider
# accepts at most 24 optional properties in strict declarations.
_INNER: Final = {
    name: schema for name, schema in UNTIL.schema["properties"].items() if name != "all"
}
JOB_UNTIL: Final = replace(UNTIL, schema={**UNTIL.schema, "properties": _INNER})
