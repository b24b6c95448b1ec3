"""What only the reply needs to know of a call of nacre's `bash`."""

from msgspec import Struct


class Said(Struct, frozen=True, kw_only=True):
    most: int
    cwd: bytes = b""
    script: bytes = b""
    path: bytes = b""
    open_stdin: bool = False
    clamped: float | None = None  # seconds that whoever asks for us waits at most
