"""The `cd` that a script begins with, when all of the rest hangs on it."""

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from nacre.script import lex, skeleton, tokens
from nacre.script.skeleton import Chain, Node, Simple
from nacre.script.tokens import Bomb, Double, Quoted, Text

_BLANK: Final = re.compile(rb"(?:\s|\\\n)*")
_PERHAPS: Final = re.compile(rb"""[\s\\'"$]*c[\\'"]*d""")
_NOT_LITERAL: Final = re.compile(rb"[*?\[{]")


class Lead(Struct, frozen=True, kw_only=True):
    path: bytes  # quotes resolved
    tilde: bool  # it begins with a tilde that bash would expand
    rest: int  # where the rest of the script begins


@lru_cache(maxsize=16)
def leading_cd(text: bytes) -> Lead | None:
    """`cd PATH && rest`, where nothing of the rest would run if the `cd` failed."""
    if not _PERHAPS.match(text):
        return None
    read = only_item(text)
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
    path = _path(frame, chain.left)
    if path is None:
        return None
    operator = frame.skeleton.index(b"&&", chain.left.end - frame.start)
    after = _BLANK.match(text, operator + 2)
    assert after is not None
    return Lead(path=path[0], tilde=path[1], rest=after.end())


def only_item(text: bytes) -> tuple[tokens.Frame, Node] | None:
    """The one thing that a script consists of, when it is one, and all of it can be read."""
    try:
        frame = lex.lex(text)
        structure, wrong = skeleton.parse(frame.skeleton, frame.start, frame.lines)
    except (Bomb, RecursionError):
        return None
    if wrong is not None or frame.trouble is not None:
        return None
    if len(structure.items) != 1 or structure.background:
        return None
    return frame, structure.items[0]


def _ends_with_separator(frame: tokens.Frame) -> bool:
    """A newline is none when nothing comes after it: a heredoc leaves one."""
    last = len(frame.skeleton.rstrip()) - 1
    return last >= 0 and frame.source[frame.start + last] == ord(";")


def _path(frame: tokens.Frame, command: Simple) -> tuple[bytes, bool] | None:
    found = [each for each in frame.tokens if command.start <= each.start < command.end]
    if len(found) != 2:
        return None
    name, path = found
    if not isinstance(name, tokens.Word) or not isinstance(path, tokens.Word):
        return None
    if literal(name) != b"cd" or b"$" in frame.source[path.start : path.end]:
        return None
    first = path.parts[0] if path.parts else None
    tilde = isinstance(first, Text) and first.text.startswith(b"~")
    text = literal(path)
    if not text or text.startswith(b"-"):
        return None
    if tilde and (text[1:2] in (b"+", b"-") or not _whole(path)):
        return None
    return text, tilde


def _whole(path: tokens.Word) -> bool:
    """A tilde counts when all up to the first slash is unquoted."""
    first = path.parts[0]
    return isinstance(first, Text) and (b"/" in first.text or len(path.parts) == 1)


def literal(word: tokens.Word) -> bytes | None:
    """A word that is the same whatever is known."""
    made = b""
    for part in word.parts:
        match part:
            case Text(text=text):
                if _NOT_LITERAL.search(text):
                    return None
                made += text
            case Quoted(text=text):
                made += text
            case Double(parts=inner) if all(isinstance(each, Quoted) for each in inner):
                made += b"".join(each.text for each in inner if isinstance(each, Quoted))
            case _:
                return None
    return made
