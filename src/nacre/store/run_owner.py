"""Owner of a run: the process that executes the run, in this boot of the machine or an earlier one.

The start entry of a run in the journal contains the run's owner as the text
`BOOT:PID:STARTED:KIND`. From the owner text of a run, any process can find out whether the owner
process is still alive. A pid alone does not identify the owner process, because the kernel reuses
pids.
"""

import os
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from nacre.procfs import processes

Kind = Literal["host", "warden"]
_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"


class Owner(Struct, frozen=True, kw_only=True):
    boot: str
    pid: int
    started: int  # start time of the process, in clock ticks after boot
    kind: Kind

    @property
    def is_alive(self) -> bool:
        if self.boot != boot_id():
            return False
        return processes.is_same_process(self.pid, self.started)


def own_id(kind: Kind) -> str:
    """Return the text that names this process as the owner of its runs."""
    # `_own_id` is cached by pid, because a forked child inherits the cache but is another owner
    return _own_id(os.getpid(), kind)


def parse_owner(word: str) -> Owner | None:
    """Parse the owner text of a run; return None if the text is not valid."""
    parts = word.split(":")
    if len(parts) != 4 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    kind: Kind = "warden" if parts[3] == "warden" else "host"
    return Owner(boot=parts[0], pid=int(parts[1]), started=int(parts[2]), kind=kind)


@lru_cache(maxsize=2)
def _own_id(pid: int, kind: Kind) -> str:
    process = processes.read_process(pid)
    return f"{boot_id()}:{pid}:{process.started if process else 0}:{kind}"


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return the kernel's id of the current boot, or `unknown` if the id cannot be read."""
    try:
        with open(_BOOT_ID_PATH) as file:
            return file.read().strip().replace("-", "")
    except OSError:
        return "unknown"
