"""Processes that are left running, described for the caller that has to decide about them."""

from collections.abc import Iterable

from nacre.model.outcome import Survivor
from nacre.procfs import ports, processes
from nacre.procfs.processes import Process


def describe_processes(members: Iterable[Process]) -> tuple[Survivor, ...]:
    found = list(members)
    listens = ports.find_ports(each.pid for each in found)
    return tuple(
        Survivor(
            pid=each.pid,
            started=each.started,
            command=processes.command_line(each.pid),
            ports=listens[each.pid],
        )
        for each in found
    )
