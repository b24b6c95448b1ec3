"""A private file that takes a stream whole, up to a limit, and never gets in its way.

Whatever goes wrong (no directory, no space, no descriptors) ends the file, not the command, and
is told in one sentence at the end.
"""

import os

from nacre.outcome import Saved
from nacre.plan import Spill
from nacre.text import human_size


class SpillFile:
    def __init__(self, spill: Spill) -> None:
        self._limit = spill.limit
        self._fd: int | None = None
        self._path: bytes | None = None
        self._size = 0
        self._problem: str | None = None
        try:
            self._fd, self._path = _private_file(spill.directory)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            self._problem = f"the output could not be saved: {_reason(error)}"

    def write(self, data: bytes) -> None:
        if self._fd is None:
            return
        room = self._limit - self._size
        try:
            self._size += _write_all(self._fd, data if len(data) <= room else data[:room])
        except _Short as short:
            self._size += short.written
            self._end(f"the output could not be saved past {self._size} bytes: {short}")
            return
        if len(data) > room:
            self._end(f"the output is saved up to the disk limit of {human_size(self._limit)}")

    def close(self) -> Saved:
        self._close()
        return Saved(
            path=self._path,
            size=self._size,
            complete=self._problem is None,
            problem=self._problem,
        )

    def _end(self, problem: str) -> None:
        self._problem = problem
        self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class _Short(Exception):
    """A write that did not take everything."""

    def __init__(self, written: int, error: OSError) -> None:
        super().__init__(_reason(error))
        self.written = written


def _private_file(directory: str | bytes | None) -> tuple[int, bytes]:
    import tempfile  # only who spills pays for it

    where = os.fsencode(tempfile.gettempdir() if directory is None else directory)
    return tempfile.mkstemp(prefix=b"nacre-", suffix=b".log", dir=where)  # 0600, close-on-exec


def _write_all(fd: int, data: bytes) -> int:
    written = 0
    rest: bytes | memoryview = data
    while written < len(data):
        try:
            written += os.write(fd, rest)
        except OSError as error:
            raise _Short(written, error) from error
        rest = memoryview(data)[written:]
    return written


def _reason(error: OSError | ValueError) -> str:
    return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()
