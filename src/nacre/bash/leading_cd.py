"""Detection of a `cd` at the start of a script, as in `cd PATH && rest`, when the whole rest of the
script depends on its success."""

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from nacre.bash import lexer, syntax_tree, tokens
from nacre.bash.syntax_tree import Chain, Node, Simple
from nacre.bash.tokens import Double, Quoted, Text, TooComplex

_BLANK: Final = re.compile(rb"(?:\s|\\\n)*")
_PERHAPS: Final = re.compile(rb"""[\s\\'"$]*c[\\'"]*d""")
_NOT_LITERAL: Final = re.compile(rb"[*?\[{]")


class LeadingCd(Struct, frozen=True, kw_only=True):
    path: bytes  # path after `cd`, with its quotes removed
    tilde: bool  # whether the path begins with a tilde that bash would expand
    rest: int  # byte offset of the rest of the script, after `cd PATH &&`


@lru_cache(maxsize=16)
def find_leading_cd(text: bytes) -> LeadingCd | None:
    """Return the `cd` of a script of the form `cd PATH && rest`; return None for any other script,
    for example if a part of the rest could run after a failed `cd`."""
    if not _PERHAPS.match(text):
        return None
    read = parse_single_item(text)
    if read is None or _ends_with_separator(read[0]):
        return None
    frame, chain = read
    if not isinstance(chain, Chain):
        return None
    while isinstance(chain.left, Chain):
        if chain.operator != b"&&":
            return None
        chain = chain.left
    if chain.operator != b"&&" or not isinstance(chain.left, Simple):
        return None
    path = _cd_path(frame, chain.left)
    if path is None:
        return None
    operator = frame.skeleton.index(b"&&", chain.left.end - frame.start)
    after = _BLANK.match(text, operator + 2)
    assert after is not None
    return LeadingCd(path=path[0], tilde=path[1], rest=after.end())


def parse_single_item(text: bytes) -> tuple[tokens.Frame, Node] | None:
    """Return the tokens and the single top-level command of a script. Return None if a script has
    several top-level commands, runs in the background, or cannot be parsed completely."""
    try:
        frame = lexer.tokenize(text)
        structure, wrong = syntax_tree.parse(frame.skeleton, frame.start, frame.lines)
    except (TooComplex, RecursionError):
        return None
    if wrong is not None or frame.trouble is not None:
        return None
    if len(structure.items) != 1 or structure.background:
        return None
    return frame, structure.items[0]


def _ends_with_separator(frame: tokens.Frame) -> bool:
    """Return whether the script ends with `;`; a newline at the end of the script, as after a
    heredoc, does not count as `;`."""
    last = len(frame.skeleton.rstrip()) - 1
    return last >= 0 and frame.source[frame.start + last] == ord(";")


def _cd_path(frame: tokens.Frame, command: Simple) -> tuple[bytes, bool] | None:
    found = [each for each in frame.tokens if command.start <= each.start < command.end]
    if len(found) != 2:
        return None
    name, path = found
    if not isinstance(name, tokens.WordToken) or not isinstance(path, tokens.WordToken):
        return None
    if literal_text(name) != b"cd" or b"$" in frame.source[path.start : path.end]:
        return None
    first = path.parts[0] if path.parts else None
    tilde = isinstance(first, Text) and first.text.startswith(b"~")
    text = literal_text(path)
    if not text or text.startswith(b"-"):
        return None
    if tilde and (text[1:2] in (b"+", b"-") or not _tilde_prefix(path)):
        return None
    return text, tilde


def _tilde_prefix(path: tokens.WordToken) -> bool:
    """Return whether the path from a leading `~` up to the first slash is unquoted, so that bash
    expands the tilde."""
    first = path.parts[0]
    return isinstance(first, Text) and (b"/" in first.text or len(path.parts) == 1)


def literal_text(word: tokens.WordToken) -> bytes | None:
    """Return the text of a word token without its quotes; return None if the word has expansions,
    globs or braces."""
    literal = b""
    for part in word.parts:
        match part:
            case Text(text=text):
                if _NOT_LITERAL.search(text):
                    return None
                literal += text
            case Quoted(text=text):
                literal += text
            case Double(parts=inner) if all(isinstance(each, Quoted) for each in inner):
                literal += b"".join(each.text for each in inner if isinstance(each, Quoted))
            case _:
                return None
    return literal
