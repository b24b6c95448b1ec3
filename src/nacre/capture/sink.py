"""One stream's bytes on their way into memory and onto disk, counted exactly.

Up to `whole`, memory has everything. Past that it has the head, and the tail is in the file, from
which it is read back at the end; only without one (or once it has ended) does memory keep a
tail of its own. A flood is so read into the same few hundred kilobytes again and again, which
stay in the processor's cache.
"""

from nacre.capture.spill import SpillFile
from nacre.capture.window import Window
from nacre.outcome import Capture
from nacre.plan import Keep, Spill, When


class Sink:
    _file: SpillFile | None = None
    _size = 0
    _overflowed = False
    # Counted as it comes once memory does not have everything; before that, at the end.
    _newlines = 0
    _short_lines = False
    _last: bytes | bytearray = b"\n"

    def __init__(self, keep: Keep, spill: Spill | None) -> None:
        self._keep = keep
        self._spill = spill
        self._window = Window(keep)
        if spill is not None and spill.when is When.ALWAYS:
            self._file = SpillFile(spill)

    def take(self, data: bytes | bytearray) -> None:
        """Have these bytes; the caller may use their place again."""
        self._size += len(data)
        if self._size > self._keep.whole:
            if self._overflowed:
                self._pass_on(data)
            else:
                self._overflow(data)
            return
        if self._file is not None:
            self._file.write(data)
        self._window.take(data)

    def close(self) -> Capture:
        if not self._size and self._file is None:
            return Capture()
        head, tail = self._window.parts()
        if not self._overflowed:
            self._count(head)
        elif self._file is not None:
            missing = min(self._keep.tail, self._size - len(head)) - len(tail)
            tail = self._file.last(missing) + tail
        return Capture(
            head=head,
            tail=tail,
            size=self._size,
            newlines=self._newlines,
            unterminated=self._last != b"\n",
            saved=None if self._file is None else self._file.close(),
        )

    def _overflow(self, data: bytes | bytearray) -> None:
        """These are too many for memory."""
        self._overflowed = True
        before = self._window.everything()
        self._newlines = before.count(b"\n")  # takes no memory, which is at its highest here
        if self._spill is not None and self._file is None:
            self._file = SpillFile(self._spill)
            self._file.write(before)
        self._count(data)
        self._window.take(data)
        if self._file is not None and self._file.write(data) == len(data):
            self._window.drop_tail()

    def _pass_on(self, data: bytes | bytearray) -> None:
        self._count(data)
        written = 0 if self._file is None else self._file.write(data)
        if written < len(data):
            self._window.take(data[written:])

    def _count(self, data: bytes | bytearray) -> None:
        # CPython removes newlines at memchr speed, which counts long lines twice as fast as
        # bytes.count and short ones three times slower: go by the lines just seen.
        if self._short_lines:
            newlines = data.count(b"\n")
        else:
            newlines = len(data) - len(data.replace(b"\n", b""))
        self._newlines += newlines
        self._short_lines = newlines * 20 > len(data)
        self._last = data[-1:] or self._last
