"""Suggestion of the most similar known name for a misspelled name."""

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question such as `did you mean 'timeout'?`, or an empty string when no known name is
    similar."""
    from difflib import get_close_matches  # lazy import; needed only for a misspelled name

    near = get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""
