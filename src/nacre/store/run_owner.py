"""Owner of a run: the process that executes the run, in this boot or an earlier one.

Each run's start entry contains its owner as the text `BOOT:PID:STARTED:KIND`. From this text, any
process can find out later whether exactly that process is still alive. A pid alone is not enough,
because the kernel reuses pids.
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
    started: int  # clock ticks after boot
    kind: Kind

    @property
    def is_alive(self) -> bool:
        if self.boot != boot_id():
            return False
        return processes.is_same_process(self.pid, self.started)


def own_id(kind: Kind) -> str:
    """Return the owner text of this process."""
    return _own_id(os.getpid(), kind)  # the cache key has the pid: a forked child is another owner


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
    """Return the kernel's id of the current boot, or `unknown`."""
    try:
        with open(_BOOT_ID_PATH) as file:
            return file.read().strip().replace("-", "")
    except OSError:
        return "unknown"
