"""One stream's bytes on their way into memory and onto disk, counted exactly."""

from nacre.capture.spill import SpillFile
from nacre.capture.window import Window
from nacre.outcome import Capture
from nacre.plan import Keep, Spill, When


class Sink:
    _file: SpillFile | None = None
    # Counted as it comes once memory does not hold everything; before that, at the end.
    _counting = False
    _newlines = 0
    _short_lines = False
    _last = b"\n"

    def __init__(self, keep: Keep, spill: Spill | None) -> None:
        self._whole = keep.whole
        self._window = Window(keep)
        self._spill = spill
        if spill is not None and spill.when is When.ALWAYS:
            self._file = SpillFile(spill)
            self._counting = True

    def take(self, data: bytes) -> None:
        window = self._window
        if not self._counting and window.size + len(data) > self._whole:
            self._overflow(window.everything())
        if self._counting:
            self._count(data)
            if self._file is not None:
                self._file.write(data)
        window.take(data)

    def close(self) -> Capture:
        size, file = self._window.size, self._file
        if not size and file is None:
            return Capture()
        head, tail = self._window.parts()
        if not self._counting:
            return Capture(
                head=head,
                size=size,
                newlines=head.count(b"\n"),
                unterminated=not head.endswith(b"\n"),
            )
        return Capture(
            head=head,
            tail=tail,
            size=size,
            newlines=self._newlines,
            unterminated=self._last != b"\n",
            saved=None if file is None else file.close(),
        )

    def _overflow(self, before: bytes) -> None:
        self._counting = True
        self._count(before)
        if self._spill is not None:
            self._file = SpillFile(self._spill)
            self._file.write(before)

    def _count(self, data: bytes) -> None:
        # CPython removes newlines at memchr speed, which counts long lines twice as fast as
        # bytes.count and short ones three times slower: go by the lines just seen.
        if self._short_lines:
            newlines = data.count(b"\n")
        else:
            newlines = len(data) - len(data.replace(b"\n", b""))
        self._newlines += newlines
        self._short_lines = newlines * 20 > len(data)
        self._last = data[-1:] or self._last
