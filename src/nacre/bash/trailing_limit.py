"""The `| head -n N` or `| tail -n N` at the end of a script, when all of it is that pipeline."""

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from nacre.bash import tokens
from nacre.bash.leading_cd import literal_text, parse_single_item
from nacre.bash.syntax_tree import Node, Pipeline, Simple

_PERHAPS: Final = re.compile(rb"\|.*\b(?:head|tail)\b", re.DOTALL)
_NUMBER: Final = re.compile(rb"\d{1,9}")


class TrailingLimit(Struct, frozen=True, kw_only=True):
    script: bytes  # without them
    head: int | None
    tail: int | None


@lru_cache(maxsize=16)
def find_trailing_limit(text: bytes) -> TrailingLimit | None:
    """The lines that are to be taken from the front, or from the end."""
    if not _PERHAPS.search(text):
        return None
    read = parse_single_item(text)
    if read is None or not isinstance(read[1], Pipeline):
        return None
    if text.lstrip().startswith(b"!"):
        return None  # its status is what counts
    return _without_last_stage(read[0], read[1].stages, text)


def _without_last_stage(
    frame: tokens.Frame, stages: list[Node], text: bytes
) -> TrailingLimit | None:
    """Without the last stage. What stands before it stays a pipe, and bash does it: of more lines
    than are kept, nobody could take the first ones and of those the last."""
    last = stages[-1]
    limit = _parse_limit(frame, last)
    if limit is None:
        return None
    assert isinstance(last, Simple)
    pipe = frame.skeleton.rindex(b"|", 0, last.start - frame.start) + frame.start
    name, count = limit
    return TrailingLimit(
        script=text[:pipe].rstrip() + text[last.end :],  # a heredoc's body stands behind it
        head=count if name == b"head" else None,
        tail=count if name == b"tail" else None,
    )


def _parse_limit(frame: tokens.Frame, stage: Node) -> tuple[bytes, int] | None:
    """`head -n N` or `head -N`, and nothing else."""
    if not isinstance(stage, Simple):
        return None
    inside = [each for each in frame.tokens if stage.start <= each.start < stage.end]
    words = [literal_text(each) if isinstance(each, tokens.WordToken) else None for each in inside]
    match words:
        case [(b"head" | b"tail") as name, b"-n", bytes(count)] if _NUMBER.fullmatch(count):
            return name, int(count)
        case [(b"head" | b"tail") as name, bytes(option)] if _NUMBER.fullmatch(option[1:]):
            return (name, int(option[1:])) if option.startswith(b"-") else None
        case _:
            return None
