"""Lease: one command's hold on a session (a persistent shell's saved state).

When the command's shell exits, `SessionLease` searches the remaining processes for savers: forked
copies of the shell that write its state to a draft file. `SessionLease` records the draft (the file
that a saver writes) as pending in the session's ledger file, and releases the session for the next
command. Once the draft is complete, `store.session_files` converts it to the session's new state.

A command that is detached releases its session, but still saves its state when it ends, unless a
later command has used the session by then. The ledger file names the draft of the detached command
(`Ledger.detached_draft`), and a later command that may change the state removes that name.
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

# seconds after a shell's exit within which the saving of its state usually starts
_SAVE_START: Final = 0.05
# seconds to wait for the saving of a shell's state to start on a busy machine
_SAVE_START_BUSY: Final = 1.0
# text in the command line of every prewarmed shell and of its forked copies
_LOADER_MARK: Final = "_nacre_in="


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
        moved: tuple[bytes, bytes] | None = None,
        errexit: bool = False,
        taken_from: str = "",
    ) -> None:
        """Create the lease (the hold on a session) of a command that has just started in the
        session's shell. `unchanging` means that the command cannot change the shell's state. `lost`
        means that nacre could not read the state saved by the session's previous command.
        If the session's directory cannot be entered, `moved` is that directory and the parent
        directory in which the command starts. `errexit` means that the session has `set -e` on, and
        that no earlier reply said so. `taken_from` is the id of the detached run whose state the
        session will not keep, because this command uses the session before that run has ended."""
        self._unchanging = unchanging
        never_saves = plan.session is not None and plan.session.read_only
        # whether the session is free for other commands
        self._released = never_saves
        # whether the command saves the state of its shell when it ends
        self._saves = not (unchanging or never_saves)
        # whether a later command has used the session before this detached command ended
        self.taken = False
        self.lost = lost
        self.moved = moved
        self.errexit = errexit
        self.taken_from = taken_from
        self._sessions = sessions
        self._file = file
        self._ledger = ledger
        self._draft_id = draft_id
        self._draft = file.draft_path(draft_id)
        self._plan = plan
        # whether the session keeps the shell state that the command left; None: the command has not
        # ended
        self.saved: bool | None = None
        self._savers: list[Process] = []

    def is_saver(self, pid: int) -> bool:
        """Return whether a process is a saver: a copy of the shell that saves the shell's state and
        does not belong to the command."""
        return not self._unchanging and processes.writes_file(pid, self._draft)

    def may_be_saving(self, find_left: Callable[[], list[Process]], seconds: float) -> bool:
        """Return whether a saver (a forked copy of the shell) is writing the shell's state, or may
        soon start to write it. `seconds` is the time since the shell exited. `find_left` returns
        the processes that the shell left running."""
        if not self._is_unsaved():
            return False
        # The search for savers (`find_file_writers`) comes last, so that it also finds a saver that
        # started while `may_save_soon` ran.
        return (
            seconds < _SAVE_START
            or self.may_save_soon(find_left(), seconds)
            or bool(processes.find_file_writers(self._draft))
        )

    def _is_unsaved(self) -> bool:
        return self._saves and not _is_complete(self._draft, self._draft_id)

    def release(self, run: str) -> None:
        """Release the session while its command, the run with the id `run`, keeps running. The
        command saves the state of its shell when it ends, unless a later command has used the
        session by then."""
        if not self._released:
            self._released = True
            if self._saves:
                self._sessions.hold_detached(self._file, held=True)
                with suppress(OSError):
                    self._file.write_ledger(
                        msgspec.structs.replace(
                            self._ledger, detached_draft=self._draft_id, detached_run=run
                        )
                    )
            self._sessions.release(self._file)

    def abandon(self) -> None:
        """Release the session if its command has ended without saving a state."""
        if not self._released:
            self._released = True
            self._sessions.release(self._file)

    def may_save_soon(self, left: list[Process], seconds: float) -> bool:
        """Return whether one of the processes in `left` is a copy of the shell that may soon save
        the shell's state. `seconds` is the time since the processes in `left` were listed.

        EOF on the output pipe does not prove that every copy of the shell has ended: the shell may
        have closed its end of the pipe earlier, and a copy may still be about to save the state. A
        forked copy of the shell usually starts to save the shell's state within `_SAVE_START`
        seconds, but may need up to `_SAVE_START_BUSY` seconds on a busy machine.
        """
        if any(self.is_saver(each.pid) for each in left):
            return False  # a process in `left` is already saving the shell's state
        copies = [each for each in left if _LOADER_MARK in processes.command_line(each.pid)]
        if not copies or not self._is_unsaved() or seconds > _SAVE_START_BUSY:
            return False
        # If a forked copy of the shell is sleeping, it is a background job of the command and will
        # save no state.
        return seconds <= _SAVE_START or any(processes.is_busy(each.pid) for each in copies)

    def end(self, left: list[Process], status: int | None) -> None:
        """End the lease (the command's hold on the session) after the command's shell has exited
        with the exit status `status`. The session keeps the new shell state if a saver (a forked
        copy of the shell) has written it, or if a saver among the processes in `left` is still
        writing it."""
        self._savers = [each for each in left if self.is_saver(each.pid)]
        self.saved = self._settle(self._savers, status)

    def without_savers(self, left: list[Process]) -> list[Process]:
        """Return the processes that the command left running, without savers, which only save the
        shell's state, and without processes that have ended."""
        return [
            each
            for each in left
            if each not in self._savers and processes.is_same_process(each.pid, each.started)
        ]

    def rename_prewarmed(self, left: tuple[Survivor, ...]) -> tuple[Survivor, ...]:
        """In a list of leftover processes, show the user's command for each copy of a prewarmed
        shell, instead of nacre's loader script."""
        command_line = f"{decode(self._plan.shell)} -c {decode(self._plan.command.original)}"
        return tuple(
            msgspec.structs.replace(each, command=command_line)
            if _LOADER_MARK in each.command
            else each
            for each in left
        )

    def _settle(self, savers: list[Process], status: int | None) -> bool:
        """Release the session after its command has ended, and return whether the session keeps the
        shell state that the command left."""
        saved = self._unchanging or bool(savers) or _is_complete(self._draft, self._draft_id)
        if self._released:
            return self._settle_detached(savers, status, saved=saved)
        self._released = True
        if self._unchanging:
            new = msgspec.structs.replace(self._ledger, status=status or 0)
            if self.lost or new != self._ledger or not new.state:
                with suppress(OSError):
                    self._file.write_ledger(new)
        elif saved:
            ledger = msgspec.structs.replace(self._ledger, pending=self._build_pending(status))
            with suppress(OSError):
                self._file.write_ledger(ledger)
        self._sessions.release(self._file)
        unwanted = self._draft_id if self._unchanging or not saved else None
        pids = [each.pid for each in savers]
        self._sessions.prepare(self._plan, self._file, pids, unwanted)
        return saved

    def _settle_detached(self, savers: list[Process], status: int | None, *, saved: bool) -> bool:
        """Save the state of a detached command, unless a later command has used the session; return
        whether the session keeps the state."""
        pids = [each.pid for each in savers]
        if not self._saves:
            self._sessions.discard(self._file, self._draft_id, pids)
            return False
        if saved:
            pending = self._build_pending(status)
            self.taken = not self._sessions.save_detached(self._file, pending)
        else:
            self.taken = not self._sessions.forget_detached(self._file, self._draft_id)
        self._sessions.hold_detached(self._file, held=False)
        if saved and not self.taken:
            self._sessions.prepare(self._plan, self._file, pids, None)
            return True
        self._sessions.discard(self._file, self._draft_id, pids)
        return False

    def _build_pending(self, status: int | None) -> PendingDraft:
        base = {} if self._ledger.state else self._plan.command.env or {}
        ignored = processes.ignored_signals().difference(RESTORED_SIGNALS)
        return PendingDraft(
            draft_id=self._draft_id,
            call_variables={name: base.get(name) for name in self._plan.command.call_env},
            status=status if status is not None and status > 128 else None,
            ignored=tuple(map(signal_name, sorted(ignored))),
        )


def _is_complete(draft: str, mark: str) -> bool:
    try:
        with open(draft, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 64))
            return file.read().endswith(b"#%b end\n" % mark.encode())
    except OSError:
        return False
