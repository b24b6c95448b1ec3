"""Sink of one output stream: counts its bytes exactly and writes them to memory and to disk.

A stream of at most `Keep.whole` bytes is held completely in memory. Of a stream longer than
`Keep.whole` bytes, only the head stays in memory; the tail is in the spill file on disk and is read
back at the end. The tail of a long stream is kept in memory only if there is no spill file, or if
the spill file accepts no more data. With a spill file, a flood of output passes through the same
few hundred kilobytes of memory, which stay in the processor's cache.
"""

from typing import Final

from nacre.capture.spill import OpenFile, SpillFile
from nacre.capture.window import Window
from nacre.model.outcome import Capture
from nacre.model.plan import Keep, Spill, When

_COPY_SIZE: Final = 128 * 1024


class Sink:
    # Defaults on the class, instead of assignments in `__init__`, save time in each run; see
    # `engine.run.Run`.
    at_limit = False  # whether the spill file has reached its size limit
    # head and tail of a long stream; None while memory holds the complete stream
    _window: Window | None = None
    _file: SpillFile | None = None
    _capture: Capture | None = None
    _size = 0
    _newlines = 0
    _short_lines = False
    _last: bytes | bytearray = b""

    def __init__(self, keep: Keep, spill: Spill | None, make: OpenFile | None = None) -> None:
        """Create the sink of one stream; the sink calls `make` to open its spill file when it needs
        one."""
        self._keep = keep
        self._spill = spill
        self._make = make
        self._everything = bytearray()
        if spill is not None and spill.when is When.ALWAYS:
            self._file = SpillFile(spill, make)

    def write(self, data: bytes | bytearray) -> None:
        """Append bytes to the stream; the sink copies the bytes, so the caller may reuse its
        buffer."""
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
        """Write the complete stream to the spill file from now on, in addition to keeping it in
        memory."""
        if self._file is None and self._spill is not None:
            self._file = self._create_spill(self._everything)

    def move_to_disk(self) -> Capture:
        """Move the stream to the spill file and keep hardly any of its bytes in memory from now on.

        The engine calls `move_to_disk` when it detaches a run (lets it continue in the background),
        because the caller no longer waits for the output. Return a `Capture` of the output that was
        in memory before the stream was moved to disk.
        """
        had = self.capture_so_far()
        self.copy_to_disk()
        if self._window is None and self._file is not None and not self._file.closed_for_writing:
            self._keep = Keep(whole=0, head=0, tail=0)
            self._start_window(self._everything)
            self._everything = bytearray()
        return had

    def add_completion_line(self, words: bytes) -> None:
        """Register the completion line, the text that `write_completion_line` will append to the
        spill file."""
        if self._file is not None:
            self._file.add_completion_line(words)

    def write_completion_line(self) -> None:
        if self._file is not None:
            self._file.write_completion_line()

    def close(self) -> Capture:
        """Return the final capture (kept output and size) of the stream; repeated calls return the
        same capture.

        Close the spill file, unless `write_completion_line` has yet to append the completion line
        to it.
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
        """Stop holding the complete stream in memory, and hold only the head and tail of the
        stream."""
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
        # The stream is written to the spill file in small slices, because each slice is a temporary
        # copy of its bytes in memory.
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
        # In CPython, `bytes.replace` finds newlines at the speed of memchr(3). Counting newlines
        # with `bytes.replace` is twice as fast as `bytes.count` for long lines, but three times
        # slower for short lines. The length of the lines in one block of output decides whether
        # nacre counts the newlines of the next block with `bytes.replace` or with `bytes.count`.
        if self._short_lines:
            newlines = data.count(b"\n")
        else:
            newlines = len(data) - len(data.replace(b"\n", b""))
        self._newlines += newlines
        self._short_lines = newlines * 20 > len(data)
        self._last = data[-1:]
