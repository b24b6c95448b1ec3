"""The audit log: one JSON line a call, in `audit.jsonl` of the state directory.

Who called what, what was decided and how it ended; never what it printed, and never the values of
variables. A log that cannot be written is no reason to refuse a command: the trouble is kept for
whoever asks. When it is full it becomes `audit.jsonl.1`, and a new one begins.
"""

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from nacre.store.append_file import AppendFile
from nacre.store.state_dir import private_state_dir

FILE_NAME: Final = "audit.jsonl"
MAX_BYTES: Final = 16 * 1024 * 1024


class AuditLog:
    """The log of one tool."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self.problem: str | None = None  # why the last line was not written
        self._path = ""
        self._file = AppendFile(lines=True, max_bytes=max_bytes)

    def begin(self, line: Mapping[str, object]) -> "AuditLine":
        """The first half of a line, made while there is time; nothing is written yet."""
        return AuditLine(self, _encode({"time": _timestamp(), **line}))

    def append(self, data: bytes) -> None:
        try:
            self._path = self._path or f"{private_state_dir()}/{FILE_NAME}"
            self._file.append(self._path, data)
        except OSError as error:
            self.problem = f"the audit log could not be written: {error}"
        else:
            self.problem = None

    def close(self) -> None:
        self._file.close()


class AuditLine:
    """A line that waits for its end."""

    def __init__(self, audit: AuditLog, start: bytes) -> None:
        self._audit = audit
        self._start = start

    def end(self, rest: Mapping[str, object]) -> None:
        self._audit.append(self._start[:-1] + b"," + _encode(rest)[1:] + b"\n")


def _timestamp() -> str:
    """As ISO 8601 has it, to the millisecond. `datetime` takes three times as long."""
    second, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_format_second(second)}.{rest // 1_000_000:03}+00:00"


@lru_cache(maxsize=1)
def _format_second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def _encode(line: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:  # half a surrogate pair in a command that was refused
        import json

        return json.dumps(line).encode()
