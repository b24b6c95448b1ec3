"""A command in a session: what becomes of the session when its shell has ended."""

import os
import time
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from nacre import proc
from nacre.loop import now
from nacre.outcome import Survivor
from nacre.plan import Plan
from nacre.proc import Process
from nacre.process.birth import RESTORED
from nacre.signals import signal_name
from nacre.store.sessions import Ledger, Pending, SessionFile
from nacre.text import decode

_ABOUT_TO: Final = 0.05  # seconds in which a copy of a shell has begun to write
_AT_MOST: Final = 1.0  # on a machine that is too busy for that
_AGAIN: Final = 0.001  # until we look again
_LOADER: Final = "_nacre_in="  # by which a shell is known that has waited


class Keeper(Protocol):
    """Who has the sessions, and is told."""

    def release(self, file: SessionFile) -> None: ...
    def discard(self, file: SessionFile, mark: str, savers: list[int]) -> None: ...
    def prepare(
        self, plan: Plan, file: SessionFile, savers: list[int], unwanted: str | None
    ) -> None: ...


class Taken:
    _over = False
    kept: bool | None = None  # whether the session will know of it

    def __init__(
        self,
        sessions: Keeper,
        file: SessionFile,
        ledger: Ledger,
        mark: str,
        plan: Plan,
        *,
        plain: bool,
        lost: bool,
    ) -> None:
        """`plain`: it cannot change its shell; `lost`: nobody could read what the one before it
        had left."""
        self._plain = plain
        self._over = plan.session is not None and plan.session.apart
        self.lost = lost
        self._sessions = sessions
        self._file = file
        self._ledger = ledger
        self._mark = mark
        self._draft = file.path(mark)
        self._plan = plan

    def saves(self, pid: int) -> bool:
        """Whether this one is not of the command, but writes down what it did to its shell."""
        return not self._plain and proc.writes_file(pid, self._draft)

    def saving(self, seconds: float) -> bool:
        """Whether anybody does, or may be about to, so long after the end of the shell."""
        if self._plain or self._over or _is_whole(self._draft, self._mark):
            return False
        return seconds < _ABOUT_TO or bool(proc.writers(self._draft))

    def let_go(self) -> None:
        """The command goes on, but the session does not wait for it: what it does to its shell is
        its own from now on."""
        if not self._over:
            self._over = True
            self._sessions.release(self._file)

    def ended(self, left: list[Process], status: int | None) -> list[Process]:
        """The shell has ended, with this status, and left these. Those of them that it really did:
        whoever writes down what the session shall know is no part of the command."""
        savers = self._savers(left)
        self.kept = self._settled(savers, status)
        others = [each for each in left if each not in savers]
        return [each for each in others if _lives(each)]  # it may have been one, and be done

    def named(self, left: tuple[Survivor, ...]) -> tuple[Survivor, ...]:
        """A copy of a shell that has waited is called by what it runs, not by how it waited."""
        said = f"{decode(self._plan.shell)} -c {decode(self._plan.command.given)}"
        return tuple(
            msgspec.structs.replace(each, command=said) if _LOADER in each.command else each
            for each in left
        )

    def _savers(self, left: list[Process]) -> list[Process]:
        """A copy of the shell may be about to be one: if its pipe was closed before, whoever reads
        that has not waited for it; and a busy machine may not have let it begin."""
        begin = now()
        while not (savers := [each for each in left if self.saves(each.pid)]):
            copies = [each for each in left if _LOADER in proc.command_line(each.pid)]
            waited = now() - begin
            if not copies or not self.saving(0.0) or waited > _AT_MOST:
                break
            # One that sleeps is somebody's background job.
            if waited > _ABOUT_TO and not any(map(_is_busy, copies)):
                break
            time.sleep(_AGAIN)
        return savers

    def _settled(self, savers: list[Process], status: int | None) -> bool:
        """Whether the session will know of it."""
        if self._over:
            self._sessions.discard(self._file, self._mark, [each.pid for each in savers])
            return False
        self._over = True
        kept = self._plain or bool(savers) or _is_whole(self._draft, self._mark)
        if self._plain:
            new = msgspec.structs.replace(self._ledger, status=status or 0)
            if self.lost or new != self._ledger or not new.state:
                with suppress(OSError):
                    self._file.write(new)
        elif kept:
            base = {} if self._ledger.state else self._plan.command.env or {}
            spared = {name: base.get(name) for name in self._plan.command.extra}
            killed = status if status is not None and status > 128 else None
            ignored = tuple(map(signal_name, sorted(proc.ignored_signals().difference(RESTORED))))
            pending = Pending(mark=self._mark, spared=spared, status=killed, ignored=ignored)
            ledger = msgspec.structs.replace(self._ledger, pending=pending)
            with suppress(OSError):
                self._file.write(ledger)
        self._sessions.release(self._file)
        unwanted = self._mark if self._plain or not kept else None
        pids = [each.pid for each in savers]
        self._sessions.prepare(self._plan, self._file, pids, unwanted)
        return kept


def _is_busy(process: Process) -> bool:
    seen = proc.look(process.pid)
    return seen is not None and seen.state in ("R", "D")


def _lives(process: Process) -> bool:
    seen = proc.look(process.pid)
    return seen is not None and seen.alive and seen.started == process.started


def _is_whole(draft: str, mark: str) -> bool:
    try:
        with open(draft, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 64))
            return file.read().endswith(b"#%b end\n" % mark.encode())
    except OSError:
        return False
