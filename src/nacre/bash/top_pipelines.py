"""Detection of the pipeline that is the last command of a script, as in `cd x && pytest | tail`."""

import re
from functools import lru_cache
from typing import Final

from nacre.bash import lexer, syntax_tree, tokens
from nacre.bash.leading_cd import literal_text
from nacre.bash.syntax_tree import Chain, Node, Pipeline, Simple
from nacre.bash.tokens import TooComplex

_ASSIGNMENT: Final = re.compile(rb"[A-Za-z_]\w*\+?=")
_UNKNOWN: Final = b"?"  # name of a stage that is a compound command, or whose name is not literal


@lru_cache(maxsize=16)
def find_last_pipeline(text: bytes) -> tuple[bytes, ...]:
    """Return the name of the program in each stage of the pipeline that is the last command of a
    script. Return an empty tuple if the last command is no pipeline, runs in the background, or is
    negated by `!`, and if the script cannot be parsed completely."""
    if b"|" not in text:
        return ()
    try:
        frame = lexer.tokenize(text)
        structure, wrong = syntax_tree.parse(frame.skeleton, frame.start, frame.lines)
    except (TooComplex, RecursionError):
        return ()
    if wrong is not None or frame.trouble is not None or not structure.items:
        return ()
    if len(structure.items) - 1 in structure.background:
        return ()
    node: Node = structure.items[-1]
    while isinstance(node, Chain):
        node = node.right
    if not isinstance(node, Pipeline):
        return ()
    return tuple(_stage_name(frame, each) for each in node.stages)


def _stage_name(frame: tokens.Frame, stage: Node) -> bytes:
    if not isinstance(stage, Simple):
        return _UNKNOWN
    inside = (each for each in frame.tokens if stage.start <= each.start < stage.end)
    words = [literal_text(each) for each in inside if isinstance(each, tokens.WordToken)]
    names = (word for word in words if word is None or not _ASSIGNMENT.match(word))
    name = next(names, None)
    return _UNKNOWN if not name else name.rpartition(b"/")[2] or name
