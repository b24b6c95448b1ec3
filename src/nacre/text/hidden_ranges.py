"""View of an output file that hides the notes that nacre itself wrote into the file."""

import io
import os
from typing import BinaryIO


class HiddenRangesFile(io.RawIOBase, BinaryIO):
    """Read-only output file without its hidden byte ranges. Positions count only the bytes of the
    output; hidden bytes have no position."""

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
        """Return the file offset of an output position, and the number of bytes that can be read
        from there up to the next hidden range. The number is None after the last hidden range."""
        for start, end in self._hidden:
            if at < start:
                return at, start - at
            at += end - start
        return at, None
