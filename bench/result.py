"""One promise and how it was kept."""

from typing import Literal, NamedTuple

NOISE = 0.10  # a promise missed by more than this fails the bench


class Result(NamedTuple):
    promise: str
    measured: float
    limit: float
    unit: str  # "x" is a ratio to the same work in C, in the same run
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
    """The middle half, for people."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 4]:.4g}..{ordered[len(ordered) * 3 // 4]:.4g}"
