"""The texts that a script's words are made of, with the quotes around each.

For whoever wants to put something else in a text's place: quoting is followed through substitutions
inside quotes, comments and heredocs are not texts, and one whole quoted string is told from what is
only a part of one.
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
    """Unquoted text, or a quoted string with its quotes. `goes_on`: the word does, behind it."""

    start: int
    end: int
    text: bytes | None  # None: a quoted string with something in it that only the shell knows
    quoted: bool
    goes_on: bool


def find_literals(script: bytes) -> Iterator[Literal]:
    """Every piece, in no order. None for what cannot be read at all."""
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
    """What stands in substitutions; the text around them is somebody's prose."""
    for part in parts:
        match part:
            case Substitution(frame=frame) if frame.source is script or frame.source == script:
                yield from _frame(frame, script)
            case Double(parts=inner) | Sum(parts=inner) | Parameter(argument=inner):
                yield from _inside(inner, script)
            case Array(words=words):
                for word in words:
                    yield from _word(word, script)
