"""Read positions: how far the replies to a caller have shown the output of each run.

The tool `job` shows what is new since the last reply about a run. A program that makes many calls
keeps its positions in memory. The command `nacre call` makes one call and exits, so it keeps the
positions of a workspace in the store, beside the output of each run.
"""

from collections.abc import Mapping
from typing import Final

_MAX_POSITIONS: Final = 10_000  # maximum number of positions in memory


class ReadPositions:
    """Positions of the callers of one tool, in memory."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], int] = {}

    def read(self, reader: str, run: str) -> int | None:
        return self._positions.get((reader, run))

    def write(self, reader: str, positions: Mapping[str, int]) -> None:
        """Remember the byte up to which a reply has shown the output of each run."""
        for run, byte in positions.items():
            key = (reader, run)
            self._positions.pop(key, None)  # so that the newest position is the last one
            self._positions[key] = byte
        while len(self._positions) > _MAX_POSITIONS:
            del self._positions[next(iter(self._positions))]


class StoredReadPositions:
    """Positions of a workspace in the store, shared by all its callers."""

    def read(self, reader: str, run: str) -> int | None:
        from nacre.store import stored_run  # lazy import: only the tool `job` reads positions

        del reader
        return stored_run.read_position(run)

    def write(self, reader: str, positions: Mapping[str, int]) -> None:
        """Store the positions of the runs that have a directory in the store. A short output of a
        run that ended within its first call has none, so a later reply shows it again."""
        del reader
        if positions:
            from nacre.store import stored_run  # lazy import: a refusal has no positions

            for run, byte in positions.items():
                stored_run.write_position(run, byte)
