"""Result of one benchmark: the measured value and its promised limit."""

from typing import Literal, NamedTuple

NOISE = 0.10  # fraction of the limit by which a result may miss the limit without failing


class Result(NamedTuple):
    promise: str
    measured: float
    limit: float
    unit: str  # "x" means a ratio to the same work in C, measured in the same run
    sense: Literal["at most", "at least"]
    detail: str

    @property
    def kept(self) -> bool:
        return self._within(0.0)

    @property
    def failed(self) -> bool:
        return not self._within(NOISE)

    def _within(self, slack: float) -> bool:
        if self.sense == "at most":
            return self.measured <= self.limit * (1 + slack)
        return self.measured >= self.limit * (1 - slack)


def spread(values: list[float]) -> str:
    """Return the first and the third quartile of the values as text."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 4]:.4g}..{ordered[len(ordered) * 3 // 4]:.4g}"
