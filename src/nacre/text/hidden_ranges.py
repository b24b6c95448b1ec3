"""Read access to an output file without the notes that nacre itself wrote into the file."""

import io
import os
from typing import BinaryIO


class HiddenRangesFile(io.RawIOBase, BinaryIO):
    """Read-only file object for an output file that skips the byte ranges in `hidden`. `seek` and
    `tell` use positions in the visible text, as if the hidden bytes were not in the file."""

    def __init__(self, file: BinaryIO, hidden: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self._file = file
        self._hidden = sorted(hidden)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        place, room = self._locate(self._at)
        if room is not None:
            buffer = memoryview(buffer)[:room]  # type: ignore[assignment]
        self._file.seek(place)
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            size = self._file.seek(0, os.SEEK_END)
            offset += size - sum(min(end, size) - min(start, size) for start, end in self._hidden)
        self._at = max(0, offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._file.close()
        super().close()

    def _locate(self, at: int) -> tuple[int, int | None]:
        """Return the file offset of a position in the visible text, and the number of bytes from
        this offset to the next hidden range (None if no hidden range follows)."""
        for start, end in self._hidden:
            if at < start:
                return at, start - at
            at += end - start
        return at, None
