"""Facts about a call of the tool `bash` of the `nacre` contract that only the call's reply
needs."""

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from nacre.model.wait_conditions import NO_CONDITIONS, Conditions

# Whether commands can run on a terminal: the arguments `pty`, `keys` and the action `screen`.
HAS_TERMINALS: Final = False

# Function that takes a run id and two byte offsets, and yields the stored output of the run between
# these offsets in blocks.
OutputReader = Callable[[str, int, int], Iterator[bytes]]


def read_nothing(run: str, start: int, end: int) -> Iterator[bytes]:
    del run, start, end
    return iter(())


class ReplyContext(Struct, frozen=True, kw_only=True):
    max_bytes: int
    page_bytes: (
        int  # bytes of output that the reply to a `job read` call without `max_output` shows
    )
    cwd: bytes = b""
    script: bytes = b""
    path: bytes = b""
    find_run: Callable[[int], str | None] = lambda _: None
    read_output: OutputReader = read_nothing
    open_stdin: bool = False
    until: Conditions = NO_CONDITIONS  # conditions for which the call waits
    # Name of the session (persistent shell) that runs the command; empty: no session.
    session: str = ""
    # Assignments of the argument `env` whose values look like references to other variables.
    literal_env: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # notes about arguments of the call that were translated
    # Seconds to which a longer requested wait was reduced; None: the requested wait was not
    # reduced.
    wait_clamped_to: float | None = None
