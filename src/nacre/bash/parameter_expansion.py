"""Expansion of `${name...}`: applies operators such as `:-`, `#` and `/` to the value of a
parameter."""

import fnmatch
import re
from typing import Final

from nacre.bash.possible_values import EMPTY, UNKNOWN, UNSET, Scope, Value, known_text, merge_values
from nacre.bash.tokens import Parameter, Text

_GLOB: Final = re.compile(rb"[*?\[]")
_SLICE: Final = re.compile(rb"(0|[1-9]\d{0,5})(?::(0|[1-9]\d{0,5}))?")
_MAX_TEXT: Final = 1024


def expand_parameter(part: Parameter, argument: Value, scope: Scope) -> Value:
    """Return the value of one parameter expansion; the module `expansion` expands `$@` and whole
    arrays."""
    value = _plain_value(part, scope)
    if part.prefix == b"#":
        known_length = value.text is not None and value.text.isascii()
        return known_text(b"%d" % len(value.text or b"")) if known_length else UNKNOWN
    if part.prefix == b"!":
        value = UNKNOWN if value.text is None else scope.variable(value.text)
    elif part.prefix:
        return UNKNOWN
    return _apply_operator(part, value, argument, scope)


def _plain_value(part: Parameter, scope: Scope) -> Value:
    if not part.subscript or part.subscript == b"0":
        return scope.variable(part.name)
    elements = scope.elements(part.name)
    if elements is None or not part.subscript.isdigit():
        return UNKNOWN
    index = int(part.subscript[:6])
    return elements[index] if index < len(elements) else UNSET


def _apply_operator(part: Parameter, value: Value, argument: Value, scope: Scope) -> Value:
    text, operator = value.text, part.operator
    match operator:
        case b"":
            return value
        case b":-" | b"-" | b":=" | b"=":
            result = _default(value, argument, colon=operator.startswith(b":"))
            if operator.endswith(b"="):
                scope.assign(part.name, result)
            return result
        case b":+" | b"+":
            if text is None:
                return merge_values(EMPTY, argument)
            return argument if text or operator == b"+" else EMPTY
        case b":?" | b"?":
            return value
    if text is None or argument.text is None or not _is_simple(text, part, argument.text):
        return UNKNOWN
    return _change_case(text, operator, argument.text)


def _is_simple(text: bytes, part: Parameter, argument: bytes) -> bool:
    """Return whether nacre certainly gets the same result as bash when it applies an operator, such
    as `#` in `${x#pattern}`, to `text`; return False for a quoted glob pattern or multibyte
    characters."""
    quoted = not all(isinstance(each, Text) for each in part.argument)
    odd = re.search(rb"[\[\\&]", argument) or (quoted and _GLOB.search(argument))
    return len(text) <= _MAX_TEXT and text.isascii() and not odd


def _default(value: Value, argument: Value, *, colon: bool) -> Value:
    if value.text is None:
        return merge_values(Value(value.texts, open=True, glob=value.glob), argument)
    if value.text:
        return value
    return argument if colon else value


def _change_case(text: bytes, operator: bytes, argument: bytes) -> Value:
    match operator:
        case b"#" | b"##" | b"%" | b"%%":
            return known_text(_trim_pattern(text, operator, argument))
        case b"/" | b"//":
            pattern, _, replacement = argument.partition(b"/")
            if not pattern or _GLOB.search(pattern):
                return UNKNOWN
            return known_text(text.replace(pattern, replacement, 1 if operator == b"/" else -1))
        case b",," if not argument:
            return known_text(text.lower())
        case b"^^" if not argument:
            return known_text(text.upper())
        case b":":
            found = _SLICE.fullmatch(argument.strip())
            if not found:
                return UNKNOWN
            first = int(found[1])
            return known_text(text[first : first + int(found[2])] if found[2] else text[first:])
        case _:
            return UNKNOWN


def _trim_pattern(text: bytes, operator: bytes, pattern: bytes) -> bytes:
    """Remove the prefix or suffix that matches a pattern, as `${x#pattern}` and `${x%pattern}`
    do."""
    lengths = range(len(text) + 1)
    front = operator.startswith(b"#")
    for length in lengths if len(operator) == 1 else reversed(lengths):
        piece = text[:length] if front else text[len(text) - length :]
        if fnmatch.fnmatchcase(piece.decode("latin-1"), pattern.decode("latin-1")):
            return text[length:] if front else text[: len(text) - length]
    return text
