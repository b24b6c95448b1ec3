"""Facts about a call of the contract nacre's tool `bash` that only the reply needs."""

from collections.abc import Callable

from msgspec import Struct


class ReplyContext(Struct, frozen=True, kw_only=True):
    max_bytes: int
    cwd: bytes = b""
    script: bytes = b""
    path: bytes = b""
    find_run: Callable[[int], str | None] = lambda _: None
    open_stdin: bool = False
    until: bool = False  # whether the call waits for a condition
    session: str = ""  # name of the run's session; empty: no session
    wait_clamped_to: float | None = None  # reduced wait in seconds; None: the wait was not reduced
