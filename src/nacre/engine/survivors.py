"""What is left running, told as one who has to decide about it would want to know it."""

import time
from collections.abc import Iterable
from typing import Final

from nacre import proc
from nacre.outcome import Survivor
from nacre.proc import Process, ports

_TRIES: Final = 4
_PAUSE: Final = 0.001


def survivors(processes: Iterable[Process]) -> tuple[Survivor, ...]:
    found = list(processes)
    listens = ports.ports_of(each.pid for each in found)
    return tuple(
        Survivor(
            pid=each.pid,
            started=each.started,
            command=_command(each.pid),
            ports=listens[each.pid],
        )
        for each in found
    )


def _command(pid: int) -> str:
    """What it is called. One that is just becoming another program has no arguments for a moment,
    and would be told as `[bash]`."""
    for _ in range(_TRIES):
        said = proc.command_line(pid)
        if not said.startswith("["):
            break
        time.sleep(_PAUSE)
    return said
