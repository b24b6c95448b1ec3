"""Pipelines that a script runs itself: at its top level, as in `cd x && pytest | tail; echo done`,
and in its groups, `if` and `case` commands and loops, as in `(cd x && pytest | tail)`."""

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


class ScriptPipeline(NamedTuple):
    """Pipeline that is a command of the script itself, and not of a function, a substitution, a
    condition or a stage of another pipeline."""

    programs: tuple[bytes, ...]  # name of the program in each stage
    # Offset of the first stage, if the pipeline is joined to another command by `&&` or `||`; None:
    # the pipeline stands alone.
    start: int | None
    end: int  # offset of the end of the last stage


@lru_cache(maxsize=16)
def find_pipelines(text: bytes) -> tuple[ScriptPipeline, ...]:
    """Return the pipelines of a script in their order, without those in the background. Return an
    empty tuple for a script that cannot be parsed completely."""
    if b"|" not in text:
        return ()
    try:
        frame = lexer.tokenize(text)
        structure = _parse(frame)
        return () if structure is None else tuple(_find_in(frame, structure))
    except (TooComplex, RecursionError):
        return ()


def _parse(frame: tokens.Frame) -> Sequence | None:
    """Return the structure of a script, or None if the script or one of its substitutions has a
    syntax error: bash's message about the error would quote the whole line."""
    structure, error = syntax_tree.parse(frame.skeleton, frame.start, frame.lines)
    if error is not None or frame.trouble is not None:
        return None
    inner = (
        part.frame
        for part in tokens.inner_parts(frame.tokens)
        # bash parses a command in backticks only when it runs the command.
        if isinstance(part, tokens.Substitution) and part.opening != b"`"
    )
    return None if any(_parse(each) is None for each in inner) else structure


def _find_in(frame: tokens.Frame, structure: Sequence) -> Iterator[ScriptPipeline]:
    starts = [each.start for each in frame.tokens]
    for pipeline, is_alone in _walk(structure):
        if all(map(_is_stage, pipeline.stages)):
            yield ScriptPipeline(
                programs=tuple(_stage_name(frame, starts, each) for each in pipeline.stages),
                start=None if is_alone else pipeline.start,
                end=pipeline.end,
            )


def _walk(structure: Sequence) -> Iterator[tuple[Pipeline, bool]]:
    """Generate the pipelines of a sequence of commands in the order of the script, each with
    whether it stands alone. Conditions of `if` and loops are left out: their failure is an
    answer."""
    for number, item in enumerate(structure.items):
        if number in structure.background:
            continue
        for node in _chain_members(item):
            if isinstance(node, Pipeline):
                yield node, node is item
            else:
                for body in _bodies(node):
                    yield from _walk(body)


def _bodies(node: Node) -> list[Sequence]:
    """Return the sequences of commands that a compound command may run."""
    match node:
        case Redirected(body=body):
            return _bodies(body)
        case Group(body=body) | Loop(body=body):
            return [body]
        case If(arms=arms, otherwise=otherwise):
            return [*(body for _, body in arms), *([] if otherwise is None else [otherwise])]
        case Case(items=items):
            return [body for _, _, body in items]
        case _:
            return []


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
