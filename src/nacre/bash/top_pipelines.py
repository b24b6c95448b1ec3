"""Pipelines at the top level of a script, as in `cd x && pytest | tail; echo done`."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from nacre.bash import lexer, syntax_tree, tokens
from nacre.bash.leading_cd import literal_text
from nacre.bash.syntax_tree import (
    Case,
    Chain,
    Group,
    If,
    Loop,
    Node,
    Pipeline,
    Redirected,
    Sequence,
    Simple,
)
from nacre.bash.tokens import TooComplex

_ASSIGNMENT: Final = re.compile(rb"[A-Za-z_]\w*\+?=")
_UNKNOWN: Final = b"?"  # name of a stage that is a compound command, or whose name is not literal


class TopPipeline(NamedTuple):
    """Pipeline that is a command of the script itself, and not of a loop, a group or a function."""

    programs: tuple[bytes, ...]  # name of the program in each stage
    # Offset of the first stage, if the pipeline is joined to another command by `&&` or `||`; None:
    # the pipeline stands alone.
    start: int | None
    end: int  # offset of the end of the last stage


@lru_cache(maxsize=16)
def find_pipelines(text: bytes) -> tuple[TopPipeline, ...]:
    """Return the pipelines at the top level of a script, without those in the background. Return an
    empty tuple for a script that cannot be parsed completely."""
    if b"|" not in text:
        return ()
    try:
        frame = lexer.tokenize(text)
        structure, wrong = syntax_tree.parse(frame.skeleton, frame.start, frame.lines)
    except (TooComplex, RecursionError):
        return ()
    if wrong is not None or frame.trouble is not None:
        return ()
    return tuple(_find_in(frame, structure))


def _find_in(frame: tokens.Frame, structure: Sequence) -> Iterator[TopPipeline]:
    starts = [each.start for each in frame.tokens]
    for number, item in enumerate(structure.items):
        if number in structure.background:
            continue
        for node in _chain_members(item):
            if not isinstance(node, Pipeline) or not all(map(_is_stage, node.stages)):
                continue
            yield TopPipeline(
                programs=tuple(_stage_name(frame, starts, each) for each in node.stages),
                start=node.start if node is not item else None,
                end=node.end,
            )


def _chain_members(node: Node) -> list[Node]:
    """Return the commands of a chain in the order of the script. The parser nests a chain to the
    left, as deeply as the chain is long."""
    members = []
    while isinstance(node, Chain):
        members.append(node.right)
        node = node.left
    return [node, *reversed(members)]


def _is_stage(node: Node) -> bool:
    body = node.body if isinstance(node, Redirected) else node
    return isinstance(body, Simple | Group | If | Loop | Case)


def _stage_name(frame: tokens.Frame, starts: list[int], stage: Node) -> bytes:
    """Return the name of a stage's program; `starts` are the offsets of the frame's tokens."""
    if not isinstance(stage, Simple):
        return _UNKNOWN
    inside = frame.tokens[bisect_left(starts, stage.start) : bisect_left(starts, stage.end)]
    words = [literal_text(each) for each in inside if isinstance(each, tokens.WordToken)]
    names = (word for word in words if word is None or not _ASSIGNMENT.match(word))
    name = next(names, None)
    return _UNKNOWN if not name else name.rpartition(b"/")[2] or name
