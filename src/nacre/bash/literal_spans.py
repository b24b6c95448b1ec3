"""Search for the literal texts in the words of a script, each with its position and its quotes.

Callers use the positions of literal texts to replace them in the script. The search for literals
keeps track of quotes, even in a substitution inside a quoted string. Comments and the bodies of
heredocs are not literals. A complete quoted string is one literal, but a part of a quoted string is
not a literal.
"""

from collections.abc import Iterator

from msgspec import Struct

from nacre.bash import lexer, tokens
from nacre.bash.tokens import (
    Array,
    Double,
    Parameter,
    Part,
    Quoted,
    Substitution,
    Sum,
    Text,
    TooComplex,
)


class Literal(Struct, frozen=True, kw_only=True):
    """Literal text of a script: unquoted text, or a quoted string with its quotes. `goes_on` says
    whether the word continues after the literal."""

    start: int
    end: int
    text: bytes | None  # literal without its quotes; None if it contains an expansion
    quoted: bool
    goes_on: bool


def find_literals(script: bytes) -> Iterator[Literal]:
    """Yield every literal text of a script, in no particular order; yield nothing if the script is
    too complex to parse."""
    try:
        frame = lexer.tokenize(script)
    except TooComplex:
        return
    yield from _frame(frame, script)


def _frame(frame: tokens.Frame, script: bytes) -> Iterator[Literal]:
    for token in frame.tokens:
        if isinstance(token, tokens.WordToken):
            yield from _word(token, script)
        elif token.heredoc is None:
            yield from _word(token.target, script)
        else:
            yield from _inside(token.heredoc.parts, script)


def _word(word: tokens.WordToken, script: bytes) -> Iterator[Literal]:
    for index, part in enumerate(word.parts):
        goes_on = index + 1 < len(word.parts)
        match part:
            case Text(start=start, end=end, text=text):
                yield Literal(start=start, end=end, text=text, quoted=False, goes_on=goes_on)
            case Quoted(start=start, end=end, text=text):
                whole = script[start:end].startswith((b"'", b"$'"))
                if whole:
                    yield Literal(start=start, end=end, text=text, quoted=True, goes_on=goes_on)
            case Double(start=start, end=end, parts=inner):
                known = all(isinstance(each, Quoted) for each in inner)
                text = b"".join(each.text for each in inner if isinstance(each, Quoted))
                yield Literal(
                    start=start,
                    end=end,
                    text=text if known else None,
                    quoted=True,
                    goes_on=goes_on,
                )
                yield from _inside(inner, script)
            case _:
                yield from _inside([part], script)


def _inside(parts: list[Part], script: bytes) -> Iterator[Literal]:
    """Yield the literals of the substitutions and array elements in `parts`. Plain text in `parts`,
    such as a line of a heredoc, yields no literals."""
    for part in parts:
        match part:
            case Substitution(frame=frame) if frame.source is script or frame.source == script:
                yield from _frame(frame, script)
            case Double(parts=inner) | Sum(parts=inner) | Parameter(argument=inner):
                yield from _inside(inner, script)
            case Array(words=words):
                for word in words:
                    yield from _word(word, script)
