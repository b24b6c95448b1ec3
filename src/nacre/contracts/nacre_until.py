"""`until`: what a call may wait for besides the end of a run, as an argument."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from nacre.asks import Until
from nacre.caller import Caller
from nacre.contracts.arguments import Kind, Wrong, count, read_bytes, seconds
from nacre.script.paths import at
from nacre.search import compiled

LONGEST_WAIT: Final = 900.0


def _until(value: Any) -> tuple[Until, ...]:
    """An object with one or several of them, or a list of such."""
    listed = value if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(each, Mapping) and each for each in listed):
        raise ValueError
    return tuple(_condition(name, each) for one in listed for name, each in one.items())


def _condition(name: str, value: Any) -> Until:
    take = _CONDITIONS.get(name)
    if take is None:
        raise Wrong("", f"one of {', '.join(_CONDITIONS)}", name)
    try:
        return take(value)
    except (ValueError, TypeError):
        raise Wrong(f".{name}", _UNTIL_WORDS[name], value) from None


def _output(value: Any) -> Until:
    if not isinstance(value, str):
        raise ValueError
    try:
        compiled(value)
    except re.error as error:
        raise Wrong(".output", f"a regular expression ({error})", value) from None
    return Until(output=value)


def _http(value: Any) -> Until:
    if not isinstance(value, str) or any(c <= " " for c in value):
        raise ValueError
    from urllib.parse import urlsplit  # few need it

    url = urlsplit(value)
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
        raise ValueError
    value.encode("ascii")
    return Until(http=value)


def _file(value: Any) -> Until:
    if not isinstance(value, str) or not value:
        raise ValueError
    return Until(file=read_bytes(value, "until.file"))


_CONDITIONS: Final[dict[str, Callable[[Any], Until]]] = {
    "output": _output,
    "port": lambda value: Until(port=count(1, 65535).take(value)),
    "http": _http,
    "file": _file,
    "idle": lambda value: Until(idle=seconds(0.1, LONGEST_WAIT).take(value)),
}
_UNTIL_WORDS: Final = {
    "output": "a regular expression",
    "port": "a port, 1 to 65535",
    "http": "a URL, http:// or https://",
    "file": "a path",
    "idle": f"a number of seconds from 0.1 to {LONGEST_WAIT:g}",
}
UNTIL: Final = Kind(
    words=f"an object with one or more of {', '.join(_CONDITIONS)}",
    schema={
        "type": "object",
        "properties": {
            "output": {"type": "string", "description": "Regex; a line of the output matches"},
            "port": {"type": "integer", "description": "The command listens on this TCP port"},
            "http": {"type": "string", "description": "This URL answers with a status below 500"},
            "file": {"type": "string", "description": "This path exists"},
            "idle": {"type": "number", "description": "No output for so many seconds"},
        },
        "required": [],
        "additionalProperties": False,
    },
    take=_until,
)


def placed(until: tuple[Until, ...], cwd: bytes, caller: Caller) -> tuple[Until, ...]:
    """With files from where the command runs."""
    return tuple(
        each
        if each.file is None
        else msgspec.structs.replace(each, file=at(cwd, _from_home(each.file, caller)))
        for each in until
    )


def _from_home(path: bytes, caller: Caller) -> bytes:
    home = caller.home if path.startswith(b"~/") else None
    return path if home is None else home + path[1:]
