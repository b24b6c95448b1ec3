"""What is left running, told as one who has to decide about it would want to know it."""

from collections.abc import Iterable

from nacre import proc
from nacre.outcome import Survivor
from nacre.proc import Process, ports


def survivors(processes: Iterable[Process]) -> tuple[Survivor, ...]:
    found = list(processes)
    listens = ports.ports_of(each.pid for each in found)
    return tuple(
        Survivor(
            pid=each.pid,
            started=each.started,
            command=proc.command_line(each.pid),
            ports=listens[each.pid],
        )
        for each in found
    )
