"""Who runs a run: this process or another, of this boot or another.

Written as one word into each run's first line, `BOOT:PID:STARTED:KIND`, by which anybody can tell
later whether that very process still lives. A pid alone would tell nothing: numbers are used again.
"""

import os
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from nacre import proc

Kind = Literal["host", "warden"]
_BOOT: Final = "/proc/sys/kernel/random/boot_id"


class Owner(Struct, frozen=True, kw_only=True):
    boot: str
    pid: int
    started: int  # clock ticks after boot
    kind: Kind

    @property
    def lives(self) -> bool:
        if self.boot != boot():
            return False
        process = proc.look(self.pid)
        return process is not None and process.alive and process.started == self.started


def me(kind: Kind) -> str:
    """The word for this process."""
    return _me(os.getpid(), kind)  # a fork is somebody else


def read(word: str) -> Owner | None:
    """None for what is no owner."""
    parts = word.split(":")
    if len(parts) != 4 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    kind: Kind = "warden" if parts[3] == "warden" else "host"
    return Owner(boot=parts[0], pid=int(parts[1]), started=int(parts[2]), kind=kind)


@lru_cache(maxsize=2)
def _me(pid: int, kind: Kind) -> str:
    process = proc.look(pid)
    return f"{boot()}:{pid}:{process.started if process else 0}:{kind}"


@lru_cache(maxsize=1)
def boot() -> str:
    """Which boot of the machine this is."""
    try:
        with open(_BOOT) as file:
            return file.read().strip().replace("-", "")
    except OSError:
        return "unknown"
