"""A private file that takes a stream whole, up to a limit, and never gets in its way.

Whatever goes wrong (no directory, no space, no descriptors) ends the file, not the command, and
is told in one sentence at the end.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from nacre.model.outcome import Saved
from nacre.model.plan import AtLimit, Spill
from nacre.text.clean import human_size
from nacre.text.line_index import LineIndexWriter

# Makes a private file, open for reading and writing, and says where it is. Raises OSError.
OpenFile = Callable[[], tuple[int, bytes]]


class SpillFile:
    def __init__(self, spill: Spill, make: OpenFile | None = None) -> None:
        """`make` makes the file; without it, a temporary one."""
        self.at_limit = False  # it has all that may be kept on disk
        self.unwritten_line = b""
        self._limit = spill.limit
        self._notes_limit = spill.then is not AtLimit.GO_ON  # in the file itself
        self._fd: int | None = None
        self._path: bytes | None = None
        self._size = 0
        self._problem: str | None = None
        self._hidden: list[tuple[int, int]] = []  # what of it are words of ours
        self._index: LineIndexWriter | None = None
        try:
            self._fd, self._path = make() if make else _create_temporary_file(spill.directory)
            if make is not None:  # else nobody will look for a line in it
                self._index = LineIndexWriter(self._path)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            self._problem = f"the output could not be saved: {_error_text(error)}"

    def write(self, data: bytes | bytearray) -> int:
        """Append; returns how many of these are in the file: all, unless it has ended."""
        if self._problem is not None or self._fd is None:
            return 0
        room = self._limit - self._size
        rest, problem = memoryview(data)[:room], ""
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            problem = _error_text(error)
        written = min(len(data), room) - len(rest)
        self._size += written
        if rest:
            self._problem = f"the output could not be saved past {self._size} bytes: {problem}"
        elif len(data) > room:
            size = human_size(self._limit)
            self._problem = f"the output is saved up to the disk limit of {size}"
            self.at_limit = True
            if self._notes_limit:
                self.write_hidden(
                    f"\n[output stopped: the disk limit of {size} is reached]\n".encode()
                )
        return written

    def index_newlines(self, newlines: int) -> None:
        """So many are in it by now."""
        if self._index is not None and self._problem is None:
            self._index.add(self._size, newlines)

    def add_completion_line(self, words: bytes) -> None:
        """Words of ours that will stand at the end; `saved` says where already now."""
        start = self._size + sum(end - start for start, end in self._hidden)
        self._hidden.append((start, start + len(words)))
        self.unwritten_line = words

    def write_completion_line(self) -> None:
        """Write what is owed, and close."""
        words, self.unwritten_line = self.unwritten_line, b""
        if words and self._fd is not None:
            with suppress(OSError):
                os.write(self._fd, words)
        self.close()

    def write_hidden(self, words: bytes) -> None:
        """Put words of ours at the end, which are not output. What cannot be written is not."""
        if self._fd is None:
            return
        start = self._size + sum(end - start for start, end in self._hidden)
        try:
            count = os.write(self._fd, words)
        except OSError:
            return
        self._hidden.append((start, start + count))

    @property
    def closed_for_writing(self) -> bool:
        """Whether it takes no more."""
        return self._problem is not None

    def read_last(self, count: int) -> bytes:
        """So many bytes from its end; none when they cannot be read."""
        if self._fd is None or count <= 0:
            return b""
        try:
            data = os.pread(self._fd, count, self._size - count)  # marks stand behind it
        except OSError:
            return b""
        return data if len(data) == count else b""

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    @property
    def saved(self) -> Saved:
        return Saved(
            path=self._path,
            size=self._size,
            complete=self._problem is None,
            problem=self._problem,
            hidden=tuple(self._hidden),
        )


def _create_temporary_file(directory: str | bytes | None) -> tuple[int, bytes]:
    import tempfile  # only who spills pays for it

    where = os.fsencode(tempfile.gettempdir() if directory is None else directory)
    return tempfile.mkstemp(prefix=b"nacre-", suffix=b".log", dir=where)  # 0600, close-on-exec


def _error_text(error: OSError | ValueError) -> str:
    return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()
