"""What only the reply needs to know of a call of nacre's `bash`."""

from collections.abc import Callable

from msgspec import Struct


class Said(Struct, frozen=True, kw_only=True):
    most: int
    cwd: bytes = b""
    script: bytes = b""
    path: bytes = b""
    run_of: Callable[[int], str | None] = lambda _: None
    open_stdin: bool = False
    until: bool = False  # it waits for something
    session: str = ""  # in which it ran
    clamped: float | None = None  # seconds that whoever asks for us waits at most
