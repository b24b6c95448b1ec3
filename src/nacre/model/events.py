"""Events that a listener (a function of the caller) receives while a command runs.

The events of one command are `Started` once, `Chunk` any number of times and `Finished` once, in
this order. A listener receives one event at a time. For a command that never started, the listener
receives only `Finished`.
"""

import enum
from collections.abc import Callable

from msgspec import Struct

from nacre.model.outcome import Outcome


class Stream(enum.Enum):
    OUTPUT = "output"  # stdout of the command, and its stderr if both share one pipe
    ERRORS = "errors"  # stderr of the command, if stderr has its own pipe


class Started(Struct, frozen=True, kw_only=True, tag="Started"):
    run: str
    pid: int


class Chunk(Struct, frozen=True, kw_only=True, tag="Chunk"):
    """Event with bytes that a command wrote to one output stream.

    `skipped` is the number of bytes right before this chunk that were dropped because the listener
    was slow.
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
    """What happens to output when a listener is slower than the command."""

    # When the listener's buffer is full, the oldest output that the listener has not yet received
    # is dropped and counted; the command does not wait.
    SKIP = "skip"
    WAIT = "wait"  # when the listener's buffer is full, the command blocks; no output is dropped


class Listening(Struct, frozen=True, kw_only=True):
    """Listener with its delivery options; a listener that is passed as a plain function gets the
    default options."""

    listener: Listener
    # Minimum seconds between two chunks; the output in between is joined into one chunk.
    every: float = 0.0
    buffer: int = 1024 * 1024  # maximum number of output bytes that wait for a slow listener
    full: Full = Full.SKIP
    # Seconds that a finished run waits for its listener to receive all events; None: no limit.
    linger: float | None = 5.0
