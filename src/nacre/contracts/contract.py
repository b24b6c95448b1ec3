"""What every contract is made of.

`admit` turns arguments into an ask, `reply` turns the answer into words, `refused` does so
for a refusal. What only the reply needs to know of the arguments travels in `Admitted.said`; the
engine never sees it.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar, get_args

import msgspec
from msgspec import Struct

from nacre.asks import Run
from nacre.caller import Caller
from nacre.outcome import Outcome
from nacre.plan import Plan
from nacre.prepare.decide import Step
from nacre.refusals import AnyRefusal, BadArguments, Refused

T = TypeVar("T")


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model is told about it."""

    name: str
    description: str
    schema: dict[str, Any]


class Admitted(Struct, frozen=True, kw_only=True):
    ask: Run
    said: object = None


class Reply(Struct, frozen=True, kw_only=True):
    """What the model gets: words, whether they are an error, and the same as data."""

    text: str
    is_error: bool
    details: dict[str, Any]


class Checks(Protocol):
    """What a contract decides about a command before it runs."""

    name: str
    steps: Sequence[Step]

    def plan(self, script: bytes, caller: Caller) -> Plan:
        """What shall happen to a command when nothing else is said about it."""
        ...


class Contract(Checks, Protocol):
    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]: ...

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        """Raises Refused for arguments that cannot be understood."""
        ...

    def reply(self, answer: Outcome, said: object) -> Reply: ...

    def refused(self, refusal: AnyRefusal) -> Reply: ...

    def printed(self, reply: Reply) -> dict[str, Any]:
        """The reply as one JSON object, as `nacre call` prints it."""
        ...


def read_arguments(arguments: object, shape: type[T]) -> T:
    """The arguments as the contract's own type; Refused, in words, when they do not fit."""
    if not isinstance(arguments, (dict, Mapping)):  # dict first: an ABC takes its time
        raise Refused(
            BadArguments(problem=f"arguments must be a JSON object, not {_named(arguments)}")
        )
    try:
        return msgspec.convert(dict(arguments), shape)
    except msgspec.ValidationError as error:
        raise Refused(BadArguments(problem=_in_words(str(error), shape))) from None


def read_script(command: str) -> bytes:
    """The command as bash gets it; Refused when it is blank or cannot be one at all."""
    if not command.strip():
        raise Refused(BadArguments(problem="command is required"))
    if "\0" in command:
        raise Refused(
            BadArguments(problem="command contains a NUL byte, which no command can; remove it")
        )
    try:
        return command.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        odd = error.object[error.start]
        raise Refused(
            BadArguments(problem=f"command contains {odd!r}, which is no character; remove it")
        ) from None


def read_options(options: Mapping[str, Any], shape: type[T]) -> T:
    """A contract's options; ValueError, with the nearest right key, for a wrong one."""
    fields = msgspec.structs.fields(shape)  # type: ignore[arg-type]
    known = [field.encode_name for field in fields]
    for key in options:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(known)}"
            raise ValueError(f"there is no option {key!r}{hint}")
    try:
        types = {field.encode_name: field.type for field in fields}
        given = {key: _from_text(key, value, types[key]) for key, value in options.items()}
        return msgspec.convert(given, shape, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"bad option: {_in_words(str(error), shape)}") from None


_SWITCHES = {"on": True, "off": False, "yes": True, "no": False}


def _from_text(key: str, value: Any, wanted: Any) -> Any:
    """A value as a command line gives it: on and off, lists with commas, JSON for the rest."""
    if not isinstance(value, str):
        return value
    if wanted is bool:
        return _SWITCHES.get(value.lower(), value)
    if getattr(wanted, "__origin__", wanted) is not tuple:
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
_UNKNOWN = re.compile(r"Object contains unknown field `(.+?)`(?: - at `\$\.(.*)`)?")
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


def _in_words(problem: str, shape: type) -> str:
    """msgspec's finding, as a sentence for a model."""
    if wrong := _WRONG_TYPE.match(problem):
        wanted, got, where = wrong.groups()
        wanted = " or ".join(_WORDS.get(each, each) for each in wanted.split(" | "))
        return f"{where} must be {wanted}, not {_WORDS.get(got, got)}"
    if bound := _BOUND.match(problem):
        number = float(bound[3])
        return f"{bound[4]} must be {_BOUNDS[bound[2]]} {number:g}"
    if choice := _NO_CHOICE.match(problem):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
        allowed = ", ".join(map(str, get_args(types.get(choice[2]))))
        return f"{choice[2]} cannot be {choice[1]}; it can be {allowed}"
    if missing := _MISSING.match(problem):
        return f"{missing[2]} needs {missing[1]}" if missing[2] else f"{missing[1]} is required"
    if unknown := _UNKNOWN.match(problem):
        if unknown[2]:
            return f"{unknown[2]} has a field {unknown[1]} that nobody knows; remove it"
        known = ", ".join(field.name for field in msgspec.structs.fields(shape))
        return f"there is no argument {unknown[1]}; this tool takes {known}"
    return problem


def _named(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"
