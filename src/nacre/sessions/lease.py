"""Lease: one command's hold on a session.

When the command's shell exits, the lease finds the savers among the processes that the shell left.
The lease then records the pending draft in the session's ledger and releases the session. Parsing
the draft belongs to `store.session_files`.
"""

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

_SAVE_START: Final = 0.05  # seconds within which a saver usually starts to write
_SAVE_START_BUSY: Final = 1.0  # seconds to wait for a saver's start on a busy machine
_LOADER_MARK: Final = "_nacre_in="  # text in the command line of every prewarmed shell


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
        """Create the lease for a command that has just started. `unchanging` means that the command
        cannot change the shell's state. `lost` means that the state that the previous command
        saved could not be read."""
        self._unchanging = unchanging
        self._released = plan.session is not None and plan.session.detached
        self.lost = lost
        self._sessions = sessions
        self._file = file
        self._ledger = ledger
        self._draft_id = draft_id
        self._draft = file.draft_path(draft_id)
        self._plan = plan
        self.saved: bool | None = None  # whether the session keeps the new state; None: unknown
        self._savers: list[Process] = []

    def is_saver(self, pid: int) -> bool:
        """Return whether a process is a saver, which writes the shell's state to the draft. A saver
        is not part of the command."""
        return not self._unchanging and processes.writes_file(pid, self._draft)

    def may_be_saving(self, find_left: Callable[[], list[Process]], seconds: float) -> bool:
        """Return whether a saver writes the session state or may be about to start. `seconds` is
        the time since the shell exited. `find_left` lists the processes that the shell left."""
        if not self._is_unsaved():
            return False
        # The search for writers comes last, because a saver may start during the other two checks.
        return (
            seconds < _SAVE_START
            or self.may_save_soon(find_left(), seconds)
            or bool(processes.find_file_writers(self._draft))
        )

    def _is_unsaved(self) -> bool:
        return not (self._unchanging or self._released or _is_complete(self._draft, self._draft_id))

    def release(self) -> None:
        """Release the session while its command keeps running. Later changes that the command makes
        to its shell are not saved in the session."""
        if not self._released:
            self._released = True
            self._sessions.release(self._file)

    def may_save_soon(self, left: list[Process], seconds: float) -> bool:
        """Return whether a copy of the shell among `left` may be about to save the session state.
        `seconds` is the time since the processes in `left` were listed.

        EOF on the output pipe does not rule out a saver that has not started to write yet, because
        the shell may have closed the pipe itself. A busy machine may delay the saver's start."""
        if any(self.is_saver(each.pid) for each in left):
            return False  # the saver has already started
        copies = [each for each in left if _LOADER_MARK in processes.command_line(each.pid)]
        if not copies or not self._is_unsaved() or seconds > _SAVE_START_BUSY:
            return False
        # A sleeping copy of the shell is a background job of the command, not a saver.
        return seconds <= _SAVE_START or any(processes.is_busy(each.pid) for each in copies)

    def end(self, left: list[Process], status: int | None) -> None:
        """End the lease after the shell has exited with `status`. The session keeps the state that
        a saver among the processes in `left` writes."""
        self._savers = [each for each in left if self.is_saver(each.pid)]
        self.saved = self._settle(self._savers, status)

    def without_savers(self, left: list[Process]) -> list[Process]:
        """Return the processes that the command left, without savers and ended processes."""
        return [
            each
            for each in left
            if each not in self._savers and processes.is_same_process(each.pid, each.started)
        ]

    def rename_prewarmed(self, left: tuple[Survivor, ...]) -> tuple[Survivor, ...]:
        """Show the user's command as the command line of a prewarmed shell's copy. The real command
        line is nacre's loader script."""
        command_line = f"{decode(self._plan.shell)} -c {decode(self._plan.command.original)}"
        return tuple(
            msgspec.structs.replace(each, command=command_line)
            if _LOADER_MARK in each.command
            else each
            for each in left
        )

    def _settle(self, savers: list[Process], status: int | None) -> bool:
        """End the lease and return whether the session keeps the state after the command."""
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
