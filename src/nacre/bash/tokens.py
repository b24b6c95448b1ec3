"""What a script is made of, as written: words and the parts that bash would expand, redirections.

Positions are bytes of `Frame.source`.
"""

import re
from typing import Final

from msgspec import Struct

# A subscript may hold quoted text and other subscripts.
SUBSCRIPT: Final = rb"\[(?:[^\[\]\"'\n]|\"[^\"]*\"|'[^']*'|\[[^\]]*\])*\]"
ASSIGNS: Final = re.compile(rb"([A-Za-z_]\w*)(" + SUBSCRIPT + rb")?(\+?=)")


class TooComplex(Exception):
    """The text is too large or too deep to be read; the message says which."""


class Text(Struct, gc=False):
    """Unquoted text as written; it may hold a tilde, braces and globs."""

    start: int
    end: int
    text: bytes


class Quoted(Struct, gc=False):
    """Text that stands for itself: escaped, or in single quotes, quotes resolved."""

    start: int
    end: int
    text: bytes


class Double(Struct, gc=False):
    """Double quotes and what is between them."""

    start: int
    end: int
    parts: "list[Part]"


class Parameter(Struct, gc=False):
    """`$name` or `${name…}`."""

    start: int
    end: int
    name: bytes
    operator: bytes = b""
    argument: "list[Part]" = []
    subscript: bytes = b""
    prefix: bytes = b""  # "#": its length, "!": what it names, "?": cannot be read


class Sum(Struct, gc=False):
    """Arithmetic; only the substitutions in it are of interest."""

    start: int
    end: int
    parts: "list[Part]"


class Substitution(Struct, gc=False):
    """`$( )`, backticks, `<( )`, `>( )`."""

    start: int
    end: int
    opening: bytes
    frame: "Frame"


class Array(Struct, gc=False):
    """The right side of `name=( … )`."""

    start: int
    end: int
    words: "list[WordToken]"


Part = Text | Quoted | Double | Parameter | Sum | Substitution | Array


class WordToken(Struct, gc=False):
    """A word as written."""

    start: int
    end: int
    parts: list[Part]
    broken: bool = False  # the text ends inside of it
    plain: bool = False  # nothing in it is special to bash
    is_test: bool = False  # all of [[ … ]] or (( … ))
    assigns: re.Match[bytes] | None = None  # name, subscript, operator, if it may be an assignment


class Heredoc(Struct, gc=False):
    start: int  # of the body
    end: int  # where the line of the delimiter begins
    quoted: bool
    closed: bool
    strips: bool  # <<- : leading tabs go
    parts: list[Part]


class Redirection(Struct, gc=False):
    start: int
    end: int
    descriptor: bytes  # as written: digits, {name} or nothing
    operator: bytes
    target: WordToken
    heredoc: Heredoc | None = None


Token = WordToken | Redirection


class Frame(Struct, gc=False):
    """Text that bash reads as commands."""

    source: bytes
    start: int
    end: int
    tokens: list[Token]  # in order; words that are grammar are not among them
    starts: list[int]  # of the tokens
    skeleton: bytes  # the frame, byte for byte, all on one line
    lines: list[int]  # where a line begins that has nothing to do with what is before it
    trouble: str | None = None
