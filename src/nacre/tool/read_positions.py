"""Read positions: how far the replies to a reader have reported each run.

The tool `job` shows what is new since the last reply about a run. A program that makes many calls
keeps its positions in memory. The command `nacre call` makes one call and exits, so it keeps the
positions in the store.
"""

from collections.abc import Mapping
from typing import Final

from nacre.model.caller import ReadPosition

_MAX_POSITIONS: Final = 10_000  # maximum number of positions in memory


class ReadPositions:
    """Positions of the readers of one tool, in memory."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], ReadPosition] = {}

    def read(self, reader: str, run: str) -> ReadPosition | None:
        return self._positions.get((reader, run))

    def write(self, reader: str, positions: Mapping[str, ReadPosition]) -> None:
        """Remember how far a reply has reported each run."""
        for run, position in positions.items():
            key = (reader, run)
            self._positions.pop(key, None)  # so that the newest position is the last one
            self._positions[key] = position
        while len(self._positions) > _MAX_POSITIONS:
            del self._positions[next(iter(self._positions))]


class StoredReadPositions:
    """Positions in the store, shared by all processes of `nacre call` in a workspace."""

    def read(self, reader: str, run: str) -> ReadPosition | None:
        from nacre.store import position_log  # lazy import: only the tool `job` reads positions

        del reader
        return position_log.read_position(run)

    def write(self, reader: str, positions: Mapping[str, ReadPosition]) -> None:
        del reader
        if positions:
            from nacre.store import position_log  # lazy import: a refusal has no positions

            position_log.write_positions(positions)
