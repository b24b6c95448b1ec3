"""Limits that our own process wears for the moment of a spawn, so that a child is born with them.

Only for processes of our own: for that moment they are limits of the whole process.
"""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

Worn = tuple[int, int, int]  # which resource, soft, hard

_one_at_a_time = threading.Lock()


@contextmanager
def worn(limits: tuple[Worn, ...]) -> Iterator[None]:
    """Raises ValueError or OSError for a limit that is not ours to have."""
    with _one_at_a_time:
        before = [(what, *resource.getrlimit(what)) for what, _, _ in limits]
        try:
            for what, soft, hard in limits:
                resource.setrlimit(what, (soft, hard))
            yield
        finally:
            for what, soft, hard in before:
                resource.setrlimit(what, (soft, hard))
