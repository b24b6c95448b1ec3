"""Starting a run's shell: file chores, run tag, run record, then the session's shell or a new one.

An interrupt (Ctrl-C in a host) may cut a start short at any point, so `try_start` can be repeated.
Completed steps are not repeated. A shell whose spawn was interrupted is rolled back.
"""

from typing import TYPE_CHECKING

from nacre.engine.loop_context import LoopContext
from nacre.eventloop import Callback
from nacre.model.plan import Plan
from nacre.model.refusals import Refused
from nacre.process.run_tag import Tag
from nacre.process.spawn_request import SpawnAttempt
from nacre.process.spawner import Child

if TYPE_CHECKING:  # a run without a store does not load these modules
    from nacre.sessions.lease import SessionLease
    from nacre.store.run_record import RunRecord


class ShellStart:
    """Start of one run's shell. `engine.run.Run` explains the class-level defaults."""

    child: Child | None = None
    lease: "SessionLease | None" = None  # hold on the session whose shell runs the command
    session_problem = ""  # reason why the command runs without its session
    reads_setup = False  # the start waits for the user's set-up, read once, in bounded time
    _attempt: SpawnAttempt | None = None
    _tag: Tag | None = None

    def __init__(
        self, plan: Plan, context: LoopContext, record: "RunRecord | None", *, hosted: bool
    ) -> None:
        """`hosted`: this process hosts the run for a client, so the run is recorded before the
        spawn."""
        self.plan = plan
        self._context = context
        self._record = record
        self._record_early = record is not None and (hosted or record.write_early)
        if self._record_early:
            self._choose_tag()  # a record that is written before the spawn contains the tag

    def roll_back(self) -> bool:
        """Undo a spawn that an interrupt cut short. Return False if there is no such spawn."""
        if self._attempt is None or self.child is not None:
            return False
        self._attempt.rollback()
        self._attempt = None
        return True

    def try_start(self, on_ready: Callback) -> Child | None:
        """Start the shell and return it, or return None if the session is not ready. After None,
        `on_ready` is called when another attempt is worthwhile. Raises Refused."""
        if self.child is not None:
            return self.child
        plan = self.plan
        if plan.chores:
            self._do_chores()
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
                self._attempt = None  # the spawner has already rolled back the attempt
                raise
        return self.child

    def _choose_tag(self) -> Tag | None:
        tag = self._tag = self._tag or self._context.spawner.new_tag()
        if self._record is not None:
            self._record.tag = None if tag is None else tag.value
        return tag

    def _do_chores(self) -> None:
        from nacre.store import pre_run_files  # imported late because few plans have chores

        pre_run_files.do_chores(self.plan.chores)

    def _acquire_session(self, tag: Tag | None, on_ready: Callback) -> bool:
        """Take the session's shell for this run. Return False if the session is not ready. Return
        True without a shell if the session is unusable: the command then runs without a session.
        Raises Refused."""
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
