"""Spill file: a private file that holds a complete output stream, up to a size limit.

An error (no directory, no space, no descriptors) ends the writing of the spill file, but never the
command; `Saved.problem` reports the error in one sentence.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from nacre.model.outcome import Saved
from nacre.model.plan import AtLimit, Spill
from nacre.text.clean import human_size
from nacre.text.line_index import LineIndexWriter

# Function that creates a private file, opens it for reading and writing, and returns its descriptor
# and path. Raises OSError.
OpenFile = Callable[[], tuple[int, bytes]]


class SpillFile:
    def __init__(self, spill: Spill, make: OpenFile | None = None) -> None:
        """Create the spill file by calling the function `make`, or as a temporary file if `make` is
        None."""
        self.at_limit = False  # whether the spill file has reached its size limit
        self.unwritten_line = b""
        self._limit = spill.limit
        # whether a note is added to the spill file when the file reaches its size limit
        self._notes_limit = spill.then is not AtLimit.GO_ON
        self._fd: int | None = None
        self._path: bytes | None = None
        self._size = 0
        self._problem: str | None = None
        # byte ranges of the spill file that hold text from nacre, not output of the command
        self._hidden: list[tuple[int, int]] = []
        self._index: LineIndexWriter | None = None
        try:
            self._fd, self._path = make() if make else _create_temporary_file(spill.directory)
            # A temporary spill file gets no line index, because nacre never searches a temporary
            # file.
            if make is not None:
                self._index = LineIndexWriter(self._path)
        except (OSError, ValueError) as error:  # ValueError is raised for a path with a NUL byte
            self._problem = f"the output could not be saved: {_error_text(error)}"

    def write(self, data: bytes | bytearray) -> int:
        """Append the data to the spill file and return how many bytes of the data were written.

        At the size limit, or after a write error, fewer bytes than given are written to the spill
        file.
        """
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
        """Tell the line index of the spill file how many newlines the file contains so far."""
        if self._index is not None and self._problem is None:
            self._index.add(self._size, newlines)

    def add_completion_line(self, words: bytes) -> None:
        """Register the completion line, the text that `write_completion_line` will append to the
        spill file.

        The property `saved` reports the byte range of the completion line even before the line is
        written.
        """
        start = self._size + sum(end - start for start, end in self._hidden)
        self._hidden.append((start, start + len(words)))
        self.unwritten_line = words

    def write_completion_line(self) -> None:
        """Append the registered completion line, if any, and close the spill file."""
        words, self.unwritten_line = self.unwritten_line, b""
        if words and self._fd is not None:
            with suppress(OSError):
                os.write(self._fd, words)
        self.close()

    def write_hidden(self, words: bytes) -> None:
        """Append text from nacre, which is not output of the command, to the spill file, and ignore
        write errors."""
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
        """Return whether the spill file accepts no more output, because of an error or its size
        limit."""
        return self._problem is not None

    def read_last(self, count: int) -> bytes:
        """Return the last `count` bytes of the command's output in the spill file, or empty bytes
        if they cannot be read."""
        if self._fd is None or count <= 0:
            return b""
        try:
            # `_size` is the size of the command's output alone; in the spill file, text from nacre
            # comes after the command's output.
            data = os.pread(self._fd, count, self._size - count)
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
    import tempfile  # lazy import: `tempfile` is needed only for a temporary spill file

    where = os.fsencode(tempfile.gettempdir() if directory is None else directory)
    # `tempfile.mkstemp` creates the file with mode 0600 and opens it with close-on-exec.
    return tempfile.mkstemp(prefix=b"nacre-", suffix=b".log", dir=where)


def _error_text(error: OSError | ValueError) -> str:
    return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()
