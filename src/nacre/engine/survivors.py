"""What is left running, told as one who has to decide about it would want to know it."""

import time
from collections.abc import Iterable
from typing import Final

from nacre.model.outcome import Survivor
from nacre.procfs import ports, processes
from nacre.procfs.processes import Process

_TRIES: Final = 4
_PAUSE: Final = 0.001


def describe_processes(processes: Iterable[Process]) -> tuple[Survivor, ...]:
    found = list(processes)
    listens = ports.find_ports(each.pid for each in found)
    return tuple(
        Survivor(
            pid=each.pid,
            started=each.started,
            command=_command_line(each.pid),
            ports=listens[each.pid],
        )
        for each in found
    )


def _command_line(pid: int) -> str:
    """What it is called. One that is just becoming another program has no arguments for a moment,
    and would be told as `[bash]`."""
    for _ in range(_TRIES):
        text = processes.command_line(pid)
        if not text.startswith("["):
            break
        time.sleep(_PAUSE)
    return text
