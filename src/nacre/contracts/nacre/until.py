"""Parsing of the tool argument `until`: conditions that end a wait before the run has ended."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from nacre.contracts.arguments import InvalidValue, Kind, count_kind, read_bytes, seconds_kind
from nacre.model.requests import (
    Condition,
    FileExists,
    HttpAnswers,
    OutputIdle,
    OutputMatches,
    PortOpen,
)
from nacre.text.search import compile_pattern

MAX_WAIT: Final = 900.0


def _convert_until(value: Any) -> tuple[Condition, ...]:
    """Convert the argument `until`, a JSON object with one or more conditions or a list of such
    objects."""
    listed = value if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(each, Mapping) and each for each in listed):
        raise ValueError
    return tuple(_build_condition(name, each) for one in listed for name, each in one.items())


def _build_condition(name: str, value: Any) -> Condition:
    take = _CONDITIONS.get(name)
    if take is None:
        raise InvalidValue("", f"one of {', '.join(_CONDITIONS)}", name)
    try:
        return take(value)
    except (ValueError, TypeError):
        raise InvalidValue(f".{name}", _UNTIL_DESCRIPTIONS[name], value) from None


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
}
UNTIL: Final = Kind(
    description=f"an object with one or more of {', '.join(_CONDITIONS)}",
    schema={
        "type": "object",
        "properties": {
            "output": {"type": "string", "description": "Regex; a line of the output matches"},
            "port": {"type": "integer", "description": "The command listens on this TCP port"},
            "http": {"type": "string", "description": "This URL answers with a status below 500"},
            "file": {"type": "string", "description": "This path exists"},
            "idle": {"type": "number", "description": "No output for this many seconds"},
        },
        "required": [],
        "additionalProperties": False,
    },
    convert=_convert_until,
)
