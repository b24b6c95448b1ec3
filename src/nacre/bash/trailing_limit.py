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
    head: int | None  # number N of a final `| head -n N`; None: the script does not end with `head`
    tail: int | None  # number N of a final `| tail -n N`; None: the script does not end with `tail`


@lru_cache(maxsize=16)
def find_trailing_limit(text: bytes) -> TrailingLimit | None:
    """Return the line limit of a `head` or `tail` that is the last stage of the script's pipeline,
    and the script without that stage; return None if the last stage is another command."""
    if not _PERHAPS.search(text):
        return None
    read = parse_single_item(text)
    if read is None or not isinstance(read[1], Pipeline):
        return None
    if text.lstrip().startswith(b"!"):
        # A pipeline that is negated with `!` is run for its exit status, so its last stage must
        # stay.
        return None
    return _without_last_stage(read[0], read[1].stages, text)


def _without_last_stage(
    frame: tokens.Frame, stages: list[Node], text: bytes
) -> TrailingLimit | None:
    """Remove a `head` or `tail` that is the last stage of a pipeline. In a pipeline that ends with
    `head -n 900 | tail -n 3`, only the `tail` stage is removed: without the `head` stage, nacre
    might drop lines 898 to 900 from a longer output."""
    last = stages[-1]
    limit = _parse_limit(frame, last)
    if limit is None:
        return None
    assert isinstance(last, Simple)
    pipe = frame.skeleton.rindex(b"|", 0, last.start - frame.start) + frame.start
    name, count = limit
    return TrailingLimit(
        # The text after the removed `head` or `tail` stage stays in the script, because that text
        # may be the body of a heredoc.
        script=text[:pipe].rstrip() + text[last.end :],
        head=count if name == b"head" else None,
        tail=count if name == b"tail" else None,
    )


def _parse_limit(frame: tokens.Frame, stage: Node) -> tuple[bytes, int] | None:
    """Parse a pipeline stage that is exactly `head -n N`, `head -N`, `tail -n N` or `tail -N`;
    return None for any other stage."""
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
