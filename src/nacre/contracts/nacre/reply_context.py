"""What only the reply needs to know of a call of nacre's `bash`."""

from collections.abc import Callable

from msgspec import Struct


class ReplyContext(Struct, frozen=True, kw_only=True):
    max_bytes: int
    cwd: bytes = b""
    script: bytes = b""
    path: bytes = b""
    find_run: Callable[[int], str | None] = lambda _: None
    open_stdin: bool = False
    until: bool = False  # it waits for something
    session: str = ""  # in which it ran
    wait_clamped_to: float | None = None  # seconds that whoever asks for us waits at most
