"""Sink of one output stream: counts its bytes exactly and writes them to memory and to disk.

Up to `Keep.whole` bytes, memory holds the complete stream. A longer stream has only its head in
memory. Its tail is in the spill file and is read back at the end. Memory keeps a tail only if there
is no spill file, or if the spill file accepts no more data. A flood of output therefore passes
through the same few hundred kilobytes of memory, which stay in the processor's cache.
"""

from typing import Final

from nacre.capture.spill import OpenFile, SpillFile
from nacre.capture.window import Window
from nacre.model.outcome import Capture
from nacre.model.plan import Keep, Spill, When

_COPY_SIZE: Final = 128 * 1024


class Sink:
    # Class-level defaults save time in each run, see `engine.run.Run`.
    at_limit = False  # whether the spill file has reached its size limit
    _window: Window | None = None  # head and tail; None while memory holds the complete stream
    _file: SpillFile | None = None
    _capture: Capture | None = None
    _size = 0
    _newlines = 0
    _short_lines = False
    _last: bytes | bytearray = b""

    def __init__(self, keep: Keep, spill: Spill | None, make: OpenFile | None = None) -> None:
        """Create the sink; `make` opens the spill file when the sink needs one."""
        self._keep = keep
        self._spill = spill
        self._make = make
        self._everything = bytearray()
        if spill is not None and spill.when is When.ALWAYS:
            self._file = SpillFile(spill, make)

    def write(self, data: bytes | bytearray) -> None:
        """Add bytes to the stream. The sink copies them, so the caller may reuse its buffer."""
        if self._window is not None:
            self._write_past_window(self._window, data)
            return
        self._everything += data
        if self._file is not None:
            self._file.write(data)
            self.at_limit = self._file.at_limit
        if len(self._everything) > self._keep.whole:
            self._start_window(self._everything)

    @property
    def size(self) -> int:
        return len(self._everything) if self._window is None else self._size

    def capture_so_far(self) -> Capture:
        return (
            self._capture_everything()
            if self._window is None
            else self._capture_ends(self._window, last=False)
        )

    def copy_to_disk(self) -> None:
        """Write the complete stream to the spill file from now on, in addition to memory."""
        if self._file is None and self._spill is not None:
            self._file = self._create_spill(self._everything)

    def move_to_disk(self) -> Capture:
        """Move the stream to the spill file and keep hardly anything in memory from now on.

        The engine calls this when it detaches the run: the caller no longer waits for the output.
        Return the capture that memory had before.
        """
        had = self.capture_so_far()
        self.copy_to_disk()
        if self._window is None and self._file is not None and not self._file.closed_for_writing:
            self._keep = Keep(whole=0, head=0, tail=0)
            self._start_window(self._everything)
            self._everything = bytearray()
        return had

    def add_completion_line(self, words: bytes) -> None:
        """Announce the text that `write_completion_line` will append to the spill file."""
        if self._file is not None:
            self._file.add_completion_line(words)

    def write_completion_line(self) -> None:
        if self._file is not None:
            self._file.write_completion_line()

    def close(self) -> Capture:
        """Return the final capture of the stream. Repeated calls return the same capture.

        The spill file is closed, unless a completion line is still to be written to it.
        """
        if self._capture is None:
            self._capture = (
                self._capture_everything()
                if self._window is None
                else self._capture_ends(self._window)
            )
        if self._file is not None and not self._file.unwritten_line:
            self._file.close()
        return self._capture

    def _capture_everything(self) -> Capture:
        data = self._everything
        if not data and self._file is None:
            return Capture()
        return Capture(
            head=bytes(data),
            size=len(data),
            newlines=data.count(b"\n"),
            unterminated=bool(data) and not data.endswith(b"\n"),
            saved=None if self._file is None else self._file.saved,
        )

    def _start_window(self, everything: bytearray) -> None:
        """Stop holding the complete stream in memory; hold its head and tail instead."""
        self._size = len(everything)
        self._newlines = everything.count(b"\n")
        self._last = everything[-1:]
        if self._file is None and self._spill is not None:
            self._file = self._create_spill(everything)
        self._window = Window(self._keep, everything)
        if self._file is not None and not self._file.closed_for_writing:
            self._window.drop_tail()

    def _create_spill(self, everything: bytearray) -> SpillFile:
        assert self._spill is not None
        file = SpillFile(self._spill, self._make)
        # The stream is written in small pieces, because each slice is a copy in memory.
        for start in range(0, len(everything), _COPY_SIZE):
            file.write(everything[start : start + _COPY_SIZE])
        self.at_limit = file.at_limit
        return file

    def _write_past_window(self, window: Window, data: bytes | bytearray) -> None:
        self._size += len(data)
        self._count(data)
        written = 0 if self._file is None else self._file.write(data)
        if self._file is not None:
            self._file.index_newlines(self._newlines)
        if written < len(data):
            self.at_limit = self._file is not None and self._file.at_limit
            window.write(data[written:])

    def _capture_ends(self, window: Window, *, last: bool = True) -> Capture:
        head, tail = window.head, window.tail() if last else window.tail_so_far()
        if self._file is not None:
            missing = min(self._keep.tail, self._size - len(head)) - len(tail)
            tail = self._file.read_last(missing) + tail
        return Capture(
            head=head,
            tail=tail,
            size=self._size,
            newlines=self._newlines,
            unterminated=self._size > 0 and self._last != b"\n",
            saved=None if self._file is None else self._file.saved,
        )

    def _count(self, data: bytes | bytearray) -> None:
        # In CPython, `replace` finds newlines at memchr speed. Counting newlines with `replace` is
        # twice as fast as `bytes.count` for long lines, but three times slower for short lines.
        # The line length in the previous block decides which method counts the next block.
        if self._short_lines:
            newlines = data.count(b"\n")
        else:
            newlines = len(data) - len(data.replace(b"\n", b""))
        self._newlines += newlines
        self._short_lines = newlines * 20 > len(data)
        self._last = data[-1:]
