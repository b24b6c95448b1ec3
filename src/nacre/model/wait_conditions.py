"""Conditions that the argument `until` of a call waits for, and what was seen when a condition was
met.

The encoded names (`tag`) must not change, because clients and wardens (nacre's daemons) of
different versions talk to each other.
"""

from msgspec import Struct


class OutputMatches(Struct, frozen=True, tag="output"):
    """Condition: a line of the run's output matches a regular expression."""

    pattern: str


class PortOpen(Struct, frozen=True, tag="port"):
    """Condition: a process of the run listens on this TCP port."""

    port: int


class HttpAnswers(Struct, frozen=True, tag="http"):
    """Condition: a GET request to the URL is answered with a status below 500."""

    url: str


class FileExists(Struct, frozen=True, tag="file"):
    path: bytes


class OutputIdle(Struct, frozen=True, tag="idle"):
    """Condition: the run has written no output for this number of seconds."""

    seconds: float


Condition = OutputMatches | PortOpen | HttpAnswers | FileExists | OutputIdle


class Conditions(Struct, frozen=True, kw_only=True):
    """Conditions of the argument `until`. The wait ends when the first of them
    is met, or all of them if `all` is set."""

    listed: tuple[Condition, ...] = ()
    all: bool = False  # whether the wait is over only when all conditions are met
    end_run: bool = False  # whether the run is ended when the conditions are met

    def __bool__(self) -> bool:
        return bool(self.listed)


NO_CONDITIONS = Conditions()


class LineMatched(Struct, frozen=True, kw_only=True, tag="output"):
    condition: OutputMatches
    line: int  # number of the matching line in the output, counted from 1
    text: str


class PortOpened(Struct, frozen=True, kw_only=True, tag="port"):
    condition: PortOpen
    pid: int  # pid of the run's process that listens on the awaited TCP port


class HttpAnswered(Struct, frozen=True, kw_only=True, tag="http"):
    condition: HttpAnswers
    status: int
    # If only processes outside of the run listen on the TCP port of the awaited URL: the pid of one
    # of these processes.
    foreign_pid: int | None = None


class FileFound(Struct, frozen=True, kw_only=True, tag="file"):
    condition: FileExists


class OutputStopped(Struct, frozen=True, kw_only=True, tag="idle"):
    condition: OutputIdle


SingleMet = LineMatched | PortOpened | HttpAnswered | FileFound | OutputStopped


class AllMet(Struct, frozen=True, kw_only=True, tag="all"):
    """What was seen when all conditions were met, one value for each condition."""

    met: tuple[SingleMet, ...]


ConditionMet = SingleMet | AllMet
