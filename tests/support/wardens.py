"""Access to the wardens that tests have started, found by warden tag and state directory."""

import signal
from contextlib import suppress
from pathlib import Path

from nacre.process.process_tree import send_signal
from nacre.process.run_tag import WARDEN_TAG
from nacre.procfs import processes
from nacre.procfs.processes import Process
from tests.support.helpers import eventually, has_exited


def find(below: Path) -> list[Process]:
    """Return the wardens whose state directory is `below` or inside `below`. A child that a warden
    has forked looks like a warden until it calls exec, so children of found wardens are left
    out."""
    found = [
        each
        for each in processes.read_all_processes().values()
        if each.alive
        and processes.soft_locks(each.pid) == WARDEN_TAG.value
        and _is_below(each, below)
    ]
    pids = {each.pid for each in found}
    return [each for each in found if each.parent not in pids]


def _is_below(process: Process, below: Path) -> bool:
    with suppress(OSError):
        for entry in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"NACRE_HOME="):
                state = entry.partition(b"=")[2].decode()
                return state == str(below) or state.startswith(f"{below}/")
    return False


def children(below: Path) -> list[tuple[int, int, str]]:
    """Return pid, start time and command line of each live child of the wardens in `below`."""
    pids = {each.pid for each in find(below)}
    return [
        (each.pid, each.started, processes.command_line(each.pid))
        for each in (processes.read_all_processes().values() if pids else ())
        if each.parent in pids and each.alive
    ]


def end(below: Path, *, runs: bool = False) -> None:
    """Terminate the wardens in `below` and wait for their exit. With `runs`, first kill their
    children."""
    for warden in find(below):
        for each in processes.read_all_processes().values() if runs else ():
            if each.parent == warden.pid:
                send_signal(each, signal.SIGKILL)
        send_signal(warden, signal.SIGTERM)
        eventually(lambda pid=warden.pid: has_exited(pid))  # type: ignore[misc]


def kill(below: Path) -> Process:
    """Kill the only warden with SIGKILL, without a clean shutdown, and wait until it exits."""
    (warden,) = find(below)
    send_signal(warden, signal.SIGKILL)
    eventually(lambda: has_exited(warden.pid))
    return warden
