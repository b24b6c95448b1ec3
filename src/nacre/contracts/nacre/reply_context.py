"""Facts about a call of the tool `bash` of the `nacre` contract that only the call's reply
needs."""

from collections.abc import Callable

from msgspec import Struct


class ReplyContext(Struct, frozen=True, kw_only=True):
    max_bytes: int
    cwd: bytes = b""
    script: bytes = b""
    path: bytes = b""
    find_run: Callable[[int], str | None] = lambda _: None
    open_stdin: bool = False
    until: bool = False  # whether the call waits for a condition of its argument `until`
    # Name of the session (persistent shell) that runs the command; empty: no session.
    session: str = ""
    # Seconds to which a longer requested wait was reduced; None: the requested wait was not
    # reduced.
    wait_clamped_to: float | None = None
