"""A private file that takes a stream whole, up to a limit, and never gets in its way.

Whatever goes wrong (no directory, no space, no descriptors) ends the file, not the command, and
is told in one sentence at the end.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from nacre.lines import Index
from nacre.outcome import Saved
from nacre.plan import AtLimit, Spill
from nacre.text import human_size

# Makes a private file, open for reading and writing, and says where it is. Raises OSError.
Make = Callable[[], tuple[int, bytes]]


class SpillFile:
    at_limit = False  # it has all that may be kept on disk
    owed = b""

    def __init__(self, spill: Spill, make: Make | None = None) -> None:
        """`make` makes the file; without it, a temporary one."""
        self._limit = spill.limit
        self._says_so = spill.then is not AtLimit.GO_ON  # in the file itself
        self._fd: int | None = None
        self._path: bytes | None = None
        self._size = 0
        self._problem: str | None = None
        self._marks: list[tuple[int, int]] = []  # what of it are words of ours
        self._index: Index | None = None
        try:
            self._fd, self._path = make() if make else _private_file(spill.directory)
            if make is not None:  # else nobody will look for a line in it
                self._index = Index(self._path)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            self._problem = f"the output could not be saved: {_reason(error)}"

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
            problem = _reason(error)
        written = min(len(data), room) - len(rest)
        self._size += written
        if rest:
            self._problem = f"the output could not be saved past {self._size} bytes: {problem}"
        elif len(data) > room:
            size = human_size(self._limit)
            self._problem = f"the output is saved up to the disk limit of {size}"
            self.at_limit = True
            if self._says_so:
                self.mark(f"\n[output stopped: the disk limit of {size} is reached]\n".encode())
        return written

    def note(self, newlines: int) -> None:
        """So many are in it by now."""
        if self._index is not None and self._problem is None:
            self._index.note(self._size, newlines)

    def owe(self, words: bytes) -> None:
        """Words of ours that will stand at the end; `saved` says where already now."""
        start = self._size + sum(end - start for start, end in self._marks)
        self._marks.append((start, start + len(words)))
        self.owed = words

    def settle(self) -> None:
        """Write what is owed, and close."""
        words, self.owed = self.owed, b""
        if words and self._fd is not None:
            with suppress(OSError):
                os.write(self._fd, words)
        self.close()

    def mark(self, words: bytes) -> None:
        """Put words of ours at the end, which are not output. What cannot be written is not."""
        if self._fd is None:
            return
        start = self._size + sum(end - start for start, end in self._marks)
        try:
            count = os.write(self._fd, words)
        except OSError:
            return
        self._marks.append((start, start + count))

    @property
    def ended(self) -> bool:
        """Whether it takes no more."""
        return self._problem is not None

    def last(self, count: int) -> bytes:
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
            marks=tuple(self._marks),
        )


def _private_file(directory: str | bytes | None) -> tuple[int, bytes]:
    import tempfile  # only who spills pays for it

    where = os.fsencode(tempfile.gettempdir() if directory is None else directory)
    return tempfile.mkstemp(prefix=b"nacre-", suffix=b".log", dir=where)  # 0600, close-on-exec


def _reason(error: OSError | ValueError) -> str:
    return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()
