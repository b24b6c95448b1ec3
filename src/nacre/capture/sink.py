"""One stream's bytes on their way into memory and onto disk, counted exactly.

Up to `whole`, memory has everything. Past that it has the head, and the tail is in the file, from
which it is read back at the end; only without one (or once it has ended) does memory keep a
tail of its own. A flood is so read into the same few hundred kilobytes again and again, which
stay in the processor's cache.
"""

from typing import Final

from nacre.capture.spill import Make, SpillFile
from nacre.capture.window import Window
from nacre.outcome import Capture
from nacre.plan import Keep, Spill, When

_PIECE: Final = 128 * 1024


class Sink:
    at_limit = False  # the disk has all that it may keep
    _window: Window | None = None  # once memory does not have everything
    _file: SpillFile | None = None
    _capture: Capture | None = None
    _size = 0
    _newlines = 0
    _short_lines = False
    _last: bytes | bytearray = b""

    def __init__(self, keep: Keep, spill: Spill | None, make: Make | None = None) -> None:
        """`make` makes the file to spill to, should it be needed."""
        self._keep = keep
        self._spill = spill
        self._make = make
        self._all = bytearray()
        if spill is not None and spill.when is When.ALWAYS:
            self._file = SpillFile(spill, make)

    def take(self, data: bytes | bytearray) -> None:
        """Have these bytes; the caller may use their place again."""
        if self._window is not None:
            self._pass_on(self._window, data)
            return
        self._all += data
        if self._file is not None:
            self._file.write(data)
            self.at_limit = self._file.at_limit
        if len(self._all) > self._keep.whole:
            self._overflow(self._all)

    @property
    def size(self) -> int:
        return len(self._all) if self._window is None else self._size

    def so_far(self) -> Capture:
        return self._everything() if self._window is None else self._ends(self._window, last=False)

    def tee(self) -> None:
        """Have all of it in the file, too, from now on."""
        if self._file is None and self._spill is not None:
            self._file = self._filled(self._all)

    def to_disk(self) -> Capture:
        """Have all of it in the file from now on, and hardly anything in memory: this goes on
        without whoever wanted it. Returns what memory had."""
        had = self.so_far()
        self.tee()
        if self._window is None and self._file is not None and not self._file.ended:
            self._keep = Keep(whole=0, head=0, tail=0)
            self._overflow(self._all)
            self._all = bytearray()
        return had

    def owe(self, words: bytes) -> None:
        """Words of ours that will stand at the end of the file, once we settle."""
        if self._file is not None:
            self._file.owe(words)

    def settle(self) -> None:
        if self._file is not None:
            self._file.settle()

    def close(self) -> Capture:
        """What there was of it; as often as it is asked."""
        if self._capture is None:
            self._capture = self._everything() if self._window is None else self._ends(self._window)
        if self._file is not None and not self._file.owed:
            self._file.close()
        return self._capture

    def _everything(self) -> Capture:
        data = self._all
        if not data and self._file is None:
            return Capture()
        return Capture(
            head=bytes(data),
            size=len(data),
            newlines=data.count(b"\n"),
            unterminated=bool(data) and not data.endswith(b"\n"),
            saved=None if self._file is None else self._file.saved,
        )

    def _overflow(self, everything: bytearray) -> None:
        """This is too much for memory."""
        self._size = len(everything)
        self._newlines = everything.count(b"\n")
        self._last = everything[-1:]
        if self._file is None and self._spill is not None:
            self._file = self._filled(everything)
        self._window = Window(self._keep, everything)
        if self._file is not None and not self._file.ended:
            self._window.drop_tail()

    def _filled(self, everything: bytearray) -> SpillFile:
        assert self._spill is not None
        file = SpillFile(self._spill, self._make)
        for start in range(0, len(everything), _PIECE):  # each a copy, and a small one
            file.write(everything[start : start + _PIECE])
        self.at_limit = file.at_limit
        return file

    def _pass_on(self, window: Window, data: bytes | bytearray) -> None:
        self._size += len(data)
        self._count(data)
        written = 0 if self._file is None else self._file.write(data)
        if self._file is not None:
            self._file.note(self._newlines)
        if written < len(data):
            self.at_limit = self._file is not None and self._file.at_limit
            window.take(data[written:])

    def _ends(self, window: Window, *, last: bool = True) -> Capture:
        head, tail = window.head, window.tail() if last else window.peek()
        if self._file is not None:
            missing = min(self._keep.tail, self._size - len(head)) - len(tail)
            tail = self._file.last(missing) + tail
        return Capture(
            head=head,
            tail=tail,
            size=self._size,
            newlines=self._newlines,
            unterminated=self._size > 0 and self._last != b"\n",
            saved=None if self._file is None else self._file.saved,
        )

    def _count(self, data: bytes | bytearray) -> None:
        # CPython removes newlines at memchr speed, which counts long lines twice as fast as
        # bytes.count and short ones three times slower: go by the lines just seen.
        if self._short_lines:
            newlines = data.count(b"\n")
        else:
            newlines = len(data) - len(data.replace(b"\n", b""))
        self._newlines += newlines
        self._short_lines = newlines * 20 > len(data)
        self._last = data[-1:]
