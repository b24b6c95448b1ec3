"""Detection of a `| head -n N` or `| tail -n N` at the end of a script that is a single
pipeline."""

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
    script: bytes  # script without the final `head` or `tail` stage
    head: int | None  # number of first lines to keep; None: no `head`
    tail: int | None  # number of last lines to keep; None: no `tail`


@lru_cache(maxsize=16)
def find_trailing_limit(text: bytes) -> TrailingLimit | None:
    """Return the limit of a final `head` or `tail` stage, and the script without that stage. Return
    None if the script has no such stage."""
    if not _PERHAPS.search(text):
        return None
    read = parse_single_item(text)
    if read is None or not isinstance(read[1], Pipeline):
        return None
    if text.lstrip().startswith(b"!"):
        return None  # a negated pipeline is run for its exit status
    return _without_last_stage(read[0], read[1].stages, text)


def _without_last_stage(
    frame: tokens.Frame, stages: list[Node], text: bytes
) -> TrailingLimit | None:
    """Remove the last stage of a pipeline. An earlier `head` or `tail` stays in the pipeline and
    bash runs it. nacre keeps a limited number of lines, so it could not apply both limits to longer
    output."""
    last = stages[-1]
    limit = _parse_limit(frame, last)
    if limit is None:
        return None
    assert isinstance(last, Simple)
    pipe = frame.skeleton.rindex(b"|", 0, last.start - frame.start) + frame.start
    name, count = limit
    return TrailingLimit(
        script=text[:pipe].rstrip() + text[last.end :],  # a heredoc's body follows the last stage
        head=count if name == b"head" else None,
        tail=count if name == b"tail" else None,
    )


def _parse_limit(frame: tokens.Frame, stage: Node) -> tuple[bytes, int] | None:
    """Parse a stage that is exactly `head -n N` or `head -N`, or the same with `tail`."""
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
