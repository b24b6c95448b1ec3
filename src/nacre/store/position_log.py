"""Log of read positions: how far the replies of `nacre call` have reported each run.

A line of the log has the id of a run, a byte of its output, and `ended` if a reply has reported the
end of the run: `r17 4096 ended`. The last line about a run counts. A full log is renamed, and a new
log is started. Positions in older logs are forgotten, so a later reply about such a run shows its
whole output again.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from nacre.model.caller import ReadPosition
from nacre.store.append_file import AppendFile
from nacre.store.state_dir import state_dir

_MAX_BYTES: Final = 256 * 1024  # size of a full log, which is enough for about 10,000 positions
_ENDED: Final = b"ended"


def read_position(run: str) -> ReadPosition | None:
    for path in (_log_path(), f"{_log_path()}.1"):
        with suppress(OSError, ValueError), open(path, "rb") as file:
            _, found, after = (b"\n" + file.read()).rpartition(b"\n%b " % run.encode())
            if found:
                byte, _, ended = after.partition(b"\n")[0].partition(b" ")
                return ReadPosition(int(byte), ended == _ENDED)
    return None


def write_positions(positions: Mapping[str, ReadPosition]) -> None:
    """Append positions to the log. Errors are ignored, because without a position a later reply
    only shows more than necessary."""
    lines = b"".join(
        b"%b %d %b\n" % (run.encode(), each.byte, _ENDED if each.ended else b"live")
        for run, each in positions.items()
    )
    log = AppendFile(lines=True, max_bytes=_MAX_BYTES)
    with suppress(OSError):
        log.append(_log_path(), lines)
    log.close()


def _log_path() -> str:
    return f"{state_dir()}/positions"
