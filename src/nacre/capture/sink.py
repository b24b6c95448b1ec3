"""One stream's bytes on their way into memory and onto disk, counted exactly."""

from nacre.capture.spill import SpillFile
from nacre.capture.window import Window
from nacre.outcome import Capture
from nacre.plan import Keep, Spill, When


class Sink:
    def __init__(self, keep: Keep, spill: Spill | None) -> None:
        self._whole = keep.whole
        self._window = Window(keep)
        self._spill = spill
        self._file: SpillFile | None = None
        self._newlines = 0
        self._short_lines = False
        self._last = b"\n"
        if spill is not None and spill.when is When.ALWAYS:
            self._file = SpillFile(spill)

    def take(self, data: bytes) -> None:
        self._count(data)
        if self._file is None and self._spill is not None and self._overflows_with(data):
            self._file = SpillFile(self._spill)
            self._file.write(self._window.everything())
        if self._file is not None:
            self._file.write(data)
        self._window.take(data)

    def close(self) -> Capture:
        head, tail = self._window.parts()
        return Capture(
            head=head,
            tail=tail,
            size=self._window.size,
            newlines=self._newlines,
            unterminated=self._last != b"\n",
            saved=self._file.close() if self._file is not None else None,
        )

    def _overflows_with(self, data: bytes) -> bool:
        return self._window.size + len(data) > self._whole

    def _count(self, data: bytes) -> None:
        # CPython removes newlines at memchr speed, which counts long lines twice as fast as
        # bytes.count and short ones three times slower: go by the lines just seen.
        if self._short_lines:
            newlines = data.count(b"\n")
        else:
            newlines = len(data) - len(data.replace(b"\n", b""))
        self._newlines += newlines
        self._short_lines = newlines * 20 > len(data)
        self._last = data[-1:]
