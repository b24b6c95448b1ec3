"""Starting the shell of a run: file chores, tag, record, then the session's shell or a new one.

An interrupt (Ctrl-C in a host) may cut a start short anywhere, so `try_start` can be repeated: what
is done is not done again, and a shell that was being spawned is rolled back.
"""

from typing import TYPE_CHECKING

from nacre.engine.loop_context import LoopContext
from nacre.eventloop import Callback
from nacre.model.plan import Plan
from nacre.model.refusals import Refused
from nacre.process.run_tag import Tag
from nacre.process.spawn_request import SpawnAttempt
from nacre.process.spawner import Child

if TYPE_CHECKING:  # a run without a store need not load it
    from nacre.sessions.lease import SessionLease
    from nacre.store.run_record import RunRecord


class ShellStart:
    """Class-level defaults, as in `Run`: most runs change few of them."""

    child: Child | None = None
    lease: "SessionLease | None" = None  # the session whose shell runs the command
    session_problem = ""  # why the command has no session
    reads_setup = False  # waits for the user's set-up, which is read once, in bounded time
    _attempt: SpawnAttempt | None = None
    _tag: Tag | None = None

    def __init__(
        self, plan: Plan, context: LoopContext, record: "RunRecord | None", *, hosted: bool
    ) -> None:
        """`hosted`: the run belongs to a client of this process, and is recorded before the
        spawn."""
        self.plan = plan
        self._context = context
        self._record = record
        self._record_early = record is not None and (hosted or record.write_early)
        if self._record_early:
            self._choose_tag()  # a record that is written before the spawn has the tag

    def roll_back(self) -> bool:
        """Undo a spawn that an interrupt cut short; False: there is none."""
        if self._attempt is None or self.child is not None:
            return False
        self._attempt.rollback()
        self._attempt = None
        return True

    def try_start(self, on_ready: Callback) -> Child | None:
        """None: the session is not ready; `on_ready` is called when it is worth another try.
        Raises Refused."""
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
                self._attempt = None  # nothing is left of it
                raise
        return self.child

    def _choose_tag(self) -> Tag | None:
        tag = self._tag = self._tag or self._context.spawner.new_tag()
        if self._record is not None:
            self._record.tag = None if tag is None else tag.value
        return tag

    def _do_chores(self) -> None:
        from nacre.store import pre_run_files  # few plans have any

        pre_run_files.do_chores(self.plan.chores)

    def _acquire_session(self, tag: Tag | None, on_ready: Callback) -> bool:
        """Take the shell of the session; False: it is not ready. A command whose session cannot be
        kept runs without one. Raises Refused."""
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
