"""Facts about one ended run, from which the hint functions make their hints."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from nacre.model.outcome import Ending, Exited
from nacre.text.clean import decode

# Number of bytes at the end of a run's output that the hint functions search.
SEARCHED: Final = 16 * 1024


class RunFacts(Struct, frozen=True, kw_only=True):
    """Facts about one run, from which the hint functions make their hints."""

    script: bytes
    cwd: bytes
    path: bytes  # value of PATH: the directories in which programs are searched
    ending: Ending
    stage_failed: bool = False  # whether a stage failed of a pipeline that succeeded
    output: bytes  # last bytes of the run's output
    unterminated: bool = False
    open_stdin: bool = False  # whether the run's stdin was open, or the call gave input
    out_of_memory: bool = False
    # Function that maps a pid to the id of the run that started the process.
    find_run: Callable[[int], str | None] = lambda _: None
    # Whether a session saves the changes that the command makes to the state of its shell.
    has_session: bool = False
    # Names of variables that the command did not get because they look like secrets.
    withheld: tuple[str, ...] = ()
    # References such as `$PATH in PATH` to other variables in values of the argument `env`.
    literal_env: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.ending != Exited(0)

    @property
    def lines(self) -> list[str]:
        return decode(self.output[-SEARCHED:]).splitlines()


Hint = Callable[[RunFacts], str | None]
