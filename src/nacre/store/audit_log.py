"""Audit log: one JSON line per call, in `audit.jsonl` in the state directory.

A line of the audit log says what was called in which workspace, what was decided and how the call
ended. The audit log never contains output of commands or the values of variables. If the audit log
cannot be written, commands still run, and `AuditLog.problem` keeps the error. A full audit log is
renamed to `audit.jsonl.1`, and a new log begins.
"""

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from nacre.store.append_file import AppendFile
from nacre.store.state_dir import describe_os_error, private_state_dir

FILE_NAME: Final = "audit.jsonl"
MAX_BYTES: Final = 16 * 1024 * 1024


class AuditLog:
    """Audit log, to which one `Tool` object appends a line for each call."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        # why the last line could not be written to the log; None: it was written
        self.problem: str | None = None
        self._path = ""
        self._file = AppendFile(lines=True, max_bytes=max_bytes)

    def begin(self, line: Mapping[str, object]) -> "AuditLine":
        """Encode the first half of a call's log line while its command runs; nothing is written
        yet."""
        return AuditLine(self, _encode({"time": _timestamp(), **line}))

    def append(self, data: bytes) -> None:
        try:
            self._path = self._path or f"{private_state_dir()}/{FILE_NAME}"
            self._file.append(self._path, data)
        except OSError as error:
            self.problem = f"the audit log could not be written: {describe_os_error(error)}"
        else:
            self.problem = None

    def close(self) -> None:
        self._file.close()


class AuditLine:
    """Line of the audit log for a call that has not ended, so its second half is still missing."""

    def __init__(self, audit: AuditLog, start: bytes) -> None:
        self._audit = audit
        self._start = start

    def end(self, rest: Mapping[str, object]) -> None:
        self._audit.append(self._start[:-1] + b"," + _encode(rest)[1:] + b"\n")


def _timestamp() -> str:
    """Return the current UTC time in ISO 8601 format, to the millisecond.

    Formatting the time with `datetime` would take three times as long.
    """
    second, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_format_second(second)}.{rest // 1_000_000:03}+00:00"


@lru_cache(maxsize=1)
def _format_second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def _encode(line: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:  # the text of a refused command contains half a surrogate pair
        import json

        return json.dumps(line).encode()
