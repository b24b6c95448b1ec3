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

from nacre.store.appending import Appending
from nacre.store.home import safe_home

NAME: Final = "audit.jsonl"
FULL: Final = 16 * 1024 * 1024


class Audit:
    """The log of one tool."""

    problem: str | None = None  # why the last line was not written
    _path = ""

    def __init__(self, *, full: int = FULL) -> None:
        self._file = Appending(lines=True, most=full)

    def begin(self, line: Mapping[str, object]) -> "Line":
        """The first half of a line, made while there is time; nothing is written yet."""
        return Line(self, _encoded({"time": _now(), **line}))

    def append(self, data: bytes) -> None:
        try:
            self._path = self._path or f"{safe_home()}/{NAME}"
            self._file.append(self._path, data)
        except OSError as error:
            self.problem = f"the audit log could not be written: {error}"
        else:
            self.problem = None

    def close(self) -> None:
        self._file.close()


class Line:
    """A line that waits for its end."""

    def __init__(self, audit: Audit, start: bytes) -> None:
        self._audit = audit
        self._start = start

    def end(self, rest: Mapping[str, object]) -> None:
        self._audit.append(self._start[:-1] + b"," + _encoded(rest)[1:] + b"\n")


def _now() -> str:
    """As ISO 8601 has it, to the millisecond. `datetime` takes three times as long."""
    second, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(second)}.{rest // 1_000_000:03}+00:00"


@lru_cache(maxsize=1)
def _second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def _encoded(line: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:  # half a surrogate pair in a command that was refused
        import json

        return json.dumps(line).encode()
