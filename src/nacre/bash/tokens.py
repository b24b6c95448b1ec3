"""Types for the tokens of a script as written: words, the parts of a word that bash would expand,
and redirections.

All positions are byte offsets in `Frame.source`, the text that contains the tokens.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

# Pattern of an array subscript `[...]`, which may contain quoted text and other subscripts.
SUBSCRIPT: Final = rb"\[(?:[^\[\]\"'\n]|\"[^\"]*\"|'[^']*'|\[[^\]]*\])*\]"
ASSIGNS: Final = re.compile(rb"([A-Za-z_]\w*)(" + SUBSCRIPT + rb")?(\+?=)")


class TooComplex(Exception):
    """Error for a script that is too large or too deeply nested to analyze; its message names the
    exceeded limit."""


class Text(Struct, gc=False):
    """Part of a word: unquoted text as written, possibly with a tilde, braces or globs."""

    start: int
    end: int
    text: bytes


class Quoted(Struct, gc=False):
    """Part of a word: literal text that was escaped or quoted, with quotes and escapes removed."""

    start: int
    end: int
    text: bytes


class Double(Struct, gc=False):
    """Part of a word: a double-quoted string, with the parts between its quotes."""

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
    # kind of expansion: `#` for a length (`${#x}`), `!` for an indirect expansion (`${!x}`), `?`
    # for an unknown value
    prefix: bytes = b""


class Sum(Struct, gc=False):
    """Arithmetic expression; of its parts, the analysis uses only the substitutions."""

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
    """Word as written in the script, before any expansion."""

    start: int
    end: int
    parts: list[Part]
    broken: bool = False  # whether the word has a syntax error, such as an unclosed quote
    plain: bool = False  # whether no character of the word is special to bash
    is_test: bool = False  # whether the word is a complete `[[ ... ]]` or `(( ... ))`
    # regex match of the variable name, subscript and operator, if the word may be an assignment
    assigns: re.Match[bytes] | None = None


class Heredoc(Struct, gc=False):
    start: int  # offset of the heredoc's body
    end: int  # offset of the line with the closing delimiter, where the heredoc's body ends
    quoted: bool
    closed: bool
    strips: bool  # whether leading tabs are removed from the heredoc's body, as with `<<-`
    parts: list[Part]


class Redirection(Struct, gc=False):
    start: int
    end: int
    descriptor: bytes  # redirected descriptor as written: digits, `{name}` or empty
    operator: bytes
    target: WordToken
    heredoc: Heredoc | None = None


Token = WordToken | Redirection


class Frame(Struct, gc=False):
    """Text that bash reads as commands: a script, or the inside of a substitution."""

    source: bytes
    start: int
    end: int
    # words and redirections in the order of the script; keywords are not included
    tokens: list[Token]
    starts: list[int]  # start offset of each token in `tokens`
    # one-line copy of the text from `start` to `end`, simplified for the parser tree-sitter, with
    # the same byte offsets; see `lexer`
    skeleton: bytes
    # offsets of the lines that can be parsed without the text before them; the parser may split the
    # text at these offsets
    lines: list[int]
    trouble: str | None = None


def inner_parts(items: Iterable[Token | Part]) -> Iterator[Part]:
    """Generate the parts of tokens, also those inside other parts, but not those inside the frame
    of a substitution."""
    for item in items:
        match item:
            case WordToken(parts=parts):
                yield from inner_parts(parts)
            case Redirection(target=target, heredoc=heredoc):
                yield from inner_parts((target, *([] if heredoc is None else heredoc.parts)))
            case Array(words=words):
                yield from inner_parts(words)
            case _:
                yield item
                if isinstance(item, Double | Sum):
                    yield from inner_parts(item.parts)
                elif isinstance(item, Parameter):
                    yield from inner_parts(item.argument)
