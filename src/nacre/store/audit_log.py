"""Audit log: one JSON line per call, in `audit.jsonl` in the state directory.

A line says what was called in which workspace, what was decided and how the call ended. A line
never contains output or the values of variables. A log that cannot be written does not stop a
command: `AuditLog.problem` keeps the error. A full log is renamed to `audit.jsonl.1`, and a new log
begins.
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
    """Audit log of one tool."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self.problem: str | None = None  # why the last line was not written; None: it was written
        self._path = ""
        self._file = AppendFile(lines=True, max_bytes=max_bytes)

    def begin(self, line: Mapping[str, object]) -> "AuditLine":
        """Encode the first half of a line while the command runs; nothing is written yet."""
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
    """Line of the audit log whose second half is still missing."""

    def __init__(self, audit: AuditLog, start: bytes) -> None:
        self._audit = audit
        self._start = start

    def end(self, rest: Mapping[str, object]) -> None:
        self._audit.append(self._start[:-1] + b"," + _encode(rest)[1:] + b"\n")


def _timestamp() -> str:
    """Return the current UTC time in ISO 8601 format, to the millisecond.

    Formatting with `datetime` takes three times as long.
    """
    second, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_format_second(second)}.{rest // 1_000_000:03}+00:00"


@lru_cache(maxsize=1)
def _format_second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def _encode(line: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:  # a refused command contains half a surrogate pair
        import json

        return json.dumps(line).encode()
