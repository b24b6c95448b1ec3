"""The nearest right name for one that is wrong."""

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'timeout'?`; nothing when no known name is near."""
    from difflib import get_close_matches  # only a mistake pays for it

    near = get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""
