"""Starting a run's shell: create the files that the command needs, choose the run tag (mark of the
run's processes), write the run record, then take the session's shell or spawn a new one.

An interrupt (Ctrl-C in a host) may cut the start of a shell short at any point. After an interrupt,
`try_start` can be called again: steps that were completed have no further effect. If an interrupt
cuts the spawn of a shell short, the spawn is rolled back.
"""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from nacre.engine.loop_context import LoopContext
from nacre.eventloop import Callback
from nacre.model.plan import Plan
from nacre.model.refusals import Refused
from nacre.process.run_tag import Tag
from nacre.process.spawn_request import SpawnAttempt
from nacre.process.spawner import Child

# Only runs with a session load `sessions.lease`, and only stored runs load `store.run_record`.
if TYPE_CHECKING:
    from nacre.sessions.lease import SessionLease
    from nacre.store.run_record import RunRecord

# maximum bytes that are read of the file with the exit statuses of a script's pipelines
_MAX_REPORT: Final = 65_536


class ShellStart:
    """Object that starts the shell of one run. The docstring of `engine.run.Run` explains why
    attributes have class-level defaults."""

    child: Child | None = None
    # Lease: the hold that the command of this run has on its session (persistent shell).
    lease: "SessionLease | None" = None
    session_problem = ""  # reason why the command could not use its session; otherwise empty
    # Whether the start of the shell waits until the user's shell startup files (set-up) are read;
    # the time for reading them is limited.
    reads_setup = False
    _attempt: SpawnAttempt | None = None
    _tag: Tag | None = None
    # File to which bash writes the exit statuses of the script's pipelines; empty: none.
    _report_path = ""

    def __init__(
        self, plan: Plan, context: LoopContext, record: "RunRecord | None", *, hosted: bool
    ) -> None:
        """`hosted` is True if this process hosts the run for a client; a hosted run is recorded
        before its shell is spawned."""
        self.plan = plan
        self._context = context
        self._record = record
        self._record_early = record is not None and (hosted or record.write_early)
        if self._record_early:
            # If the run record is written before the spawn, the run tag (mark of the run's
            # processes) is chosen here, because the run record contains the tag.
            self._choose_tag()

    def roll_back(self) -> bool:
        """Undo a spawn that an interrupt (Ctrl-C) cut short; return False if no spawn was cut
        short."""
        if self._attempt is None or self.child is not None:
            return False
        self._attempt.rollback()
        self._attempt = None
        return True

    def try_start(self, on_ready: Callback) -> Child | None:
        """Start the run's shell and return it, or return None if the session is not ready. After
        `try_start` has returned None, `on_ready` is called when the caller should call `try_start`
        again. Raises Refused."""
        if self.child is not None:
            return self.child
        plan = self.plan
        if plan.chores:
            self._do_chores()
        if plan.pipelines and not self._report_path:
            plan = self._ask_for_report()
        tag = self._choose_tag()
        if self._record is not None and self._record_early:
            self._record.write_start()
        if plan.session is not None and not self._acquire_session(tag, on_ready):
            return None
        if self.child is None:
            self._attempt = attempt = SpawnAttempt()
            try:
                self.child = self._context.spawner.spawn(self.plan, attempt, tag)
            except Refused:
                self._attempt = None  # the spawner has already rolled back the spawn attempt
                raise
        return self.child

    def _choose_tag(self) -> Tag | None:
        tag = self._tag = self._tag or self._context.spawner.new_tag()
        if self._record is not None:
            self._record.tag = None if tag is None else tag.value
        return tag

    def _ask_for_report(self) -> Plan:
        """Insert the code that reports the exit statuses of pipelines into the script."""
        # Lazy imports: only a script with a pipeline needs a report.
        from nacre.shell_state.pipeline_report import insert_reports
        from nacre.store.session_files import new_report_path

        with suppress(OSError):
            self._report_path = new_report_path()
            command, path = self.plan.command, os.fsencode(self._report_path)
            text = insert_reports(command.script, self.plan.pipelines, path)
            command = msgspec.structs.replace(command, reporting_script=text)
            self.plan = msgspec.structs.replace(self.plan, command=command)
        return self.plan

    def read_report(self) -> tuple[tuple[int, ...], ...]:
        """Return the exit statuses of the script's pipelines that bash has reported, and delete the
        report."""
        if not self._report_path:
            return ()
        from nacre.shell_state.pipeline_report import parse_reports

        try:
            with open(self._report_path, "rb") as file:
                statuses = parse_reports(file.read(_MAX_REPORT), self.plan.pipelines)
            os.unlink(self._report_path)
        except OSError:  # usually there is no report, because no stage has failed
            return ()
        return statuses

    def _do_chores(self) -> None:
        # Lazy import: few plans have chores (files to create before the spawn).
        from nacre.store import pre_run_files

        pre_run_files.do_chores(self.plan.chores)

    def _acquire_session(self, tag: Tag | None, on_ready: Callback) -> bool:
        """Take the session's shell for the run; return False if the session is not ready. If the
        session is unusable, return True without taking a shell: the command then runs without a
        session. Raises Refused."""
        from nacre.sessions.manager import SessionUnavailable, without_session

        context = self._context
        context.tag_index.start(None, alone=not context.shell_pids)
        try:
            leased = context.sessions().acquire(
                self.plan, context.spawner, tag, context.loop, on_ready
            )
        except SessionUnavailable as why:
            self.plan, self.session_problem = without_session(self.plan), str(why)
            return True
        if leased is None:
            self.reads_setup = context.sessions().is_reading_setup(self.plan)
            return False
        self.child, self.lease = leased
        return True
