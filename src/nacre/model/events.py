"""What is happening: the events that a listener hears while a command runs.

`Started` once, `Chunk` any number of times, `Finished` once, in this order, one at a time. A
command that never started is only `Finished`.
"""

import enum
from collections.abc import Callable

from msgspec import Struct

from nacre.model.outcome import Outcome


class Stream(enum.Enum):
    OUTPUT = "output"  # stdout, or both when merged
    ERRORS = "errors"  # stderr, when separate


class Started(Struct, frozen=True, kw_only=True, tag="Started"):
    run: str
    pid: int


class Chunk(Struct, frozen=True, kw_only=True, tag="Chunk"):
    """Some bytes of a stream. `skipped` bytes before them were too much for this listener."""

    run: str
    stream: Stream
    data: bytes
    skipped: int = 0


class Finished(Struct, frozen=True, kw_only=True, tag="Finished"):
    run: str
    outcome: Outcome


Event = Started | Chunk | Finished
Listener = Callable[[Event], object]


class Full(enum.Enum):
    """What happens when a listener is slower than the command."""

    SKIP = "skip"  # the command goes on; the oldest unheard bytes are dropped and counted
    WAIT = "wait"  # nothing is dropped; the command waits, as it would for a slow pipe


class Listening(Struct, frozen=True, kw_only=True):
    """A listener with its wishes. A plain function given as a listener has the defaults."""

    listener: Listener
    every: float = 0.0  # seconds at least between two chunks; what comes meanwhile is joined
    buffer: int = 1024 * 1024  # unheard bytes held at most
    full: Full = Full.SKIP
    linger: float | None = 5.0  # how long a finished command waits for its listener; None: for ever
