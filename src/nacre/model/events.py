"""Events that a listener receives while a command runs.

The order is `Started` once, `Chunk` any number of times, `Finished` once. A listener receives one
event at a time. A command that never started causes only `Finished`.
"""

import enum
from collections.abc import Callable

from msgspec import Struct

from nacre.model.outcome import Outcome


class Stream(enum.Enum):
    OUTPUT = "output"  # stdout, or stdout and stderr when merged
    ERRORS = "errors"  # stderr, when captured separately


class Started(Struct, frozen=True, kw_only=True, tag="Started"):
    run: str
    pid: int


class Chunk(Struct, frozen=True, kw_only=True, tag="Chunk"):
    """Bytes of one output stream.

    `skipped` counts the bytes right before this chunk that were dropped for a slow listener.
    """

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
    """Policy for a listener that is slower than the command."""

    SKIP = "skip"  # the oldest undelivered bytes are dropped and counted; the command does not wait
    WAIT = "wait"  # nothing is dropped; the command blocks, as it would on a full pipe


class Listening(Struct, frozen=True, kw_only=True):
    """Listener with its delivery options. A plain function as listener gets the defaults."""

    listener: Listener
    every: float = 0.0  # minimum seconds between two chunks; output in between is joined
    buffer: int = 1024 * 1024  # maximum number of undelivered bytes
    full: Full = Full.SKIP
    linger: float | None = 5.0  # seconds a finished run waits for its listener; None: no limit
