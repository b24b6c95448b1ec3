"""A command in a session: what becomes of the session when its shell has ended."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from nacre.model.outcome import Survivor
from nacre.model.plan import Plan
from nacre.model.signals import signal_name
from nacre.process.spawn_request import RESTORED_SIGNALS
from nacre.procfs import processes
from nacre.procfs.processes import Process
from nacre.store.session_files import Ledger, PendingDraft, SessionFile
from nacre.text.clean import decode

if TYPE_CHECKING:
    from nacre.sessions.manager import SessionManager

_SAVE_START: Final = 0.05  # seconds in which a copy of a shell has begun to write
_SAVE_START_BUSY: Final = 1.0  # on a machine that is too busy for that
_LOADER_MARK: Final = "_nacre_in="  # by which a shell is known that has waited


class SessionLease:
    def __init__(
        self,
        sessions: "SessionManager",
        file: SessionFile,
        ledger: Ledger,
        draft_id: str,
        plan: Plan,
        *,
        unchanging: bool,
        lost: bool,
    ) -> None:
        """`unchanging`: the command cannot change its shell; `lost`: the state that the command
        before it left could not be read."""
        self._unchanging = unchanging
        self._released = plan.session is not None and plan.session.detached
        self.lost = lost
        self._sessions = sessions
        self._file = file
        self._ledger = ledger
        self._draft_id = draft_id
        self._draft = file.draft_path(draft_id)
        self._plan = plan
        self.saved: bool | None = None  # whether the session will know of it; None: not known yet
        self._savers: list[Process] = []

    def is_saver(self, pid: int) -> bool:
        """Whether this one is not of the command, but writes down what it did to its shell."""
        return not self._unchanging and processes.writes_file(pid, self._draft)

    def may_be_saving(self, find_left: Callable[[], list[Process]], seconds: float) -> bool:
        """Whether a copy of the shell saves the session state, or may be about to, so long after
        the shell has ended. `find_left` lists the processes that it left."""
        if not self._is_unsaved():
            return False
        # Writers are looked for last: the copy may begin while the others are looked at.
        return (
            seconds < _SAVE_START
            or self.may_save_soon(find_left(), seconds)
            or bool(processes.find_file_writers(self._draft))
        )

    def _is_unsaved(self) -> bool:
        return not (self._unchanging or self._released or _is_complete(self._draft, self._draft_id))

    def release(self) -> None:
        """The command goes on, but the session does not wait for it: what it does to its shell is
        its own from now on."""
        if not self._released:
            self._released = True
            self._sessions.release(self._file)

    def may_save_soon(self, left: list[Process], seconds: float) -> bool:
        """Whether a copy of the shell among `left` may be about to save the session state, so long
        after the look that found them. If the shell had closed its pipe, the end of the pipe says
        nothing about that; and a busy machine may not have let the copy begin."""
        if any(self.is_saver(each.pid) for each in left):
            return False  # it has begun
        copies = [each for each in left if _LOADER_MARK in processes.command_line(each.pid)]
        if not copies or not self._is_unsaved() or seconds > _SAVE_START_BUSY:
            return False
        # A copy that sleeps is a background job of the command.
        return seconds <= _SAVE_START or any(processes.is_busy(each.pid) for each in copies)

    def end(self, left: list[Process], status: int | None) -> None:
        """The shell has ended with this status and left these processes: keep the state that a
        copy of it saves."""
        self._savers = [each for each in left if self.is_saver(each.pid)]
        self.saved = self._settle(self._savers, status)

    def without_savers(self, left: list[Process]) -> list[Process]:
        """The processes that the command left: neither a saver nor one that has ended since."""
        return [
            each
            for each in left
            if each not in self._savers and processes.is_same_process(each.pid, each.started)
        ]

    def rename_prewarmed(self, left: tuple[Survivor, ...]) -> tuple[Survivor, ...]:
        """A copy of a shell that has waited is called by what it runs, not by how it waited."""
        command_line = f"{decode(self._plan.shell)} -c {decode(self._plan.command.original)}"
        return tuple(
            msgspec.structs.replace(each, command=command_line)
            if _LOADER_MARK in each.command
            else each
            for each in left
        )

    def _settle(self, savers: list[Process], status: int | None) -> bool:
        """Whether the session will know of it."""
        if self._released:
            self._sessions.discard(self._file, self._draft_id, [each.pid for each in savers])
            return False
        self._released = True
        saved = self._unchanging or bool(savers) or _is_complete(self._draft, self._draft_id)
        if self._unchanging:
            new = msgspec.structs.replace(self._ledger, status=status or 0)
            if self.lost or new != self._ledger or not new.state:
                with suppress(OSError):
                    self._file.write_ledger(new)
        elif saved:
            base = {} if self._ledger.state else self._plan.command.env or {}
            spared = {name: base.get(name) for name in self._plan.command.call_env}
            killed = status if status is not None and status > 128 else None
            ignored = tuple(
                map(signal_name, sorted(processes.ignored_signals().difference(RESTORED_SIGNALS)))
            )
            pending = PendingDraft(
                draft_id=self._draft_id, call_variables=spared, status=killed, ignored=ignored
            )
            ledger = msgspec.structs.replace(self._ledger, pending=pending)
            with suppress(OSError):
                self._file.write_ledger(ledger)
        self._sessions.release(self._file)
        unwanted = self._draft_id if self._unchanging or not saved else None
        pids = [each.pid for each in savers]
        self._sessions.prepare(self._plan, self._file, pids, unwanted)
        return saved


def _is_complete(draft: str, mark: str) -> bool:
    try:
        with open(draft, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 64))
            return file.read().endswith(b"#%b end\n" % mark.encode())
    except OSError:
        return False
