"""Types for the tokens of a script as written: words, the parts that bash would expand, and
redirections.

Positions are byte offsets in `Frame.source`.
"""

import re
from typing import Final

from msgspec import Struct

# A subscript may contain quoted text and other subscripts.
SUBSCRIPT: Final = rb"\[(?:[^\[\]\"'\n]|\"[^\"]*\"|'[^']*'|\[[^\]]*\])*\]"
ASSIGNS: Final = re.compile(rb"([A-Za-z_]\w*)(" + SUBSCRIPT + rb")?(\+?=)")


class TooComplex(Exception):
    """Error for a text that is too large or too deeply nested to parse. The message says which."""


class Text(Struct, gc=False):
    """Unquoted text as written, possibly with a tilde, braces or globs."""

    start: int
    end: int
    text: bytes


class Quoted(Struct, gc=False):
    """Literal text that was escaped or quoted, with quotes and escapes removed."""

    start: int
    end: int
    text: bytes


class Double(Struct, gc=False):
    """Double-quoted string, with the parts between its quotes."""

    start: int
    end: int
    parts: "list[Part]"


class Parameter(Struct, gc=False):
    """Parameter expansion: `$name` or `${name...}`."""

    start: int
    end: int
    name: bytes
    operator: bytes = b""
    argument: "list[Part]" = []
    subscript: bytes = b""
    prefix: bytes = b""  # "#": length, "!": indirect expansion, "?": unparseable


class Sum(Struct, gc=False):
    """Arithmetic expression. The analysis uses only the substitutions among its parts."""

    start: int
    end: int
    parts: "list[Part]"


class Substitution(Struct, gc=False):
    """Command or process substitution: `$( )`, backticks, `<( )`, `>( )`."""

    start: int
    end: int
    opening: bytes
    frame: "Frame"


class Array(Struct, gc=False):
    """Right side of an array assignment `name=( ... )`."""

    start: int
    end: int
    words: "list[WordToken]"


Part = Text | Quoted | Double | Parameter | Sum | Substitution | Array


class WordToken(Struct, gc=False):
    """Word as written in the script."""

    start: int
    end: int
    parts: list[Part]
    broken: bool = False  # the word has a syntax error, such as an unclosed quote
    plain: bool = False  # no character of the word is special to bash
    is_test: bool = False  # the word is a complete `[[ ... ]]` or `(( ... ))`
    # regex match of name, subscript and operator, if the word may be an assignment
    assigns: re.Match[bytes] | None = None


class Heredoc(Struct, gc=False):
    start: int  # offset of the body
    end: int  # offset of the line with the delimiter
    quoted: bool
    closed: bool
    strips: bool  # `<<-`: leading tabs are removed from the body
    parts: list[Part]


class Redirection(Struct, gc=False):
    start: int
    end: int
    descriptor: bytes  # descriptor as written: digits, `{name}` or empty
    operator: bytes
    target: WordToken
    heredoc: Heredoc | None = None


Token = WordToken | Redirection


class Frame(Struct, gc=False):
    """Text that bash reads as commands: a script, or the inside of a substitution."""

    source: bytes
    start: int
    end: int
    tokens: list[Token]  # words and redirections in order; keywords are not included
    starts: list[int]  # start offsets of `tokens`
    # text for tree-sitter on one line, with the byte offsets of the frame; see `lexer`
    skeleton: bytes
    # offsets of lines that begin a command independent of the text before it
    lines: list[int]
    trouble: str | None = None
