"""A run: executes the lifecycle table (states, triggers, actions) for one command.

    descriptors, timers -> _trigger(Trigger) -> lifecycle.next_step -> actions -> _ACTIONS[...]

All code of a run executes on the thread that drives its event loop; other threads pass calls to
that thread with `loop.post`. The module `shell_start` starts a run's shell, and `stopping` ends its
process tree. The module `leftover_search` finds the processes that the shell left running. The
module `outcome_builder` collects the data for the run's outcome.
"""

import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from nacre.engine.leftover_pipes import LeftoverPipes
from nacre.engine.leftover_search import LeftoverSearch, are_starting, name_processes
from nacre.engine.lifecycle import Action, State, Trigger, next_step
from nacre.engine.listener_thread import EventSink, ListenerThread, start_listener_thread
from nacre.engine.loop_context import LoopContext
from nacre.engine.outcome_builder import EndReason, OutcomeBuilder
from nacre.engine.output import Output
from nacre.engine.queue import QueueState
from nacre.engine.shell_start import ShellStart
from nacre.engine.stdin import OnWritten, StdinWriter
from nacre.engine.stopping import Stopping
from nacre.eventloop import Callback, Timer, now
from nacre.model.events import Finished, Listening, Started
from nacre.model.outcome import Capture, Outcome, Survivor, ending_code
from nacre.model.plan import LeftoverPolicy, OpenStdin, Plan, Streams, When
from nacre.model.refusals import CannotSpawn, NoDescriptors, Refused, Unavailable
from nacre.model.requests import Running
from nacre.process import spawner as children
from nacre.process.process_tree import ProcessTree
from nacre.process.spawner import Child
from nacre.procfs import blocked_readers, processes, reading_shell

# Only runs with a session load `sessions.lease`, and only stored runs load `store.run_record`.
if TYPE_CHECKING:
    from nacre.sessions.lease import SessionLease
    from nacre.store.run_record import RunRecord

# Seconds from the spawn until the event loop begins to watch the output pipes of a run that has no
# listener. Most commands end within 4 ms, so reading their output only after the exit saves a
# wake-up of the event loop, which costs a few percent of the time that a short command takes.
_QUIET_START: Final = 0.004
# Maximum seconds that a cancelled run waits for its listener to receive the last event.
_CANCELLED_LINGER: Final = 1.0
# Seconds between two checks whether the leftover processes of an exited shell can be ended.
_EXIT_POLL: Final = 0.001


class Run:
    """State and operations of one run, from its entry into the queue until its outcome is
    delivered.

    The classes with an object for each run have class-level attribute defaults: `Run`,
    `ShellStart`, `OutcomeBuilder`, `Output`, `RunRecord`, `Sink`, `PipeReader`, `SpawnAttempt`,
    `Ticket`, `Call`. Class-level defaults save time: most runs change few attributes, and setting
    every attribute in `__init__` would cost a few percent of the time of an `echo`. Classes without
    class-level defaults set all their attributes in `__init__`.
    """

    queue_state = QueueState.NOT_QUEUED
    _state = State.QUEUED
    _child: Child | None = None
    _output: Output  # output streams of the run; set after the shell is spawned
    _stdin: StdinWriter | None = None
    _leftover_pipes: LeftoverPipes | None = None
    _lease: "SessionLease | None" = None  # the run's hold on its session (persistent shell)
    # Monotonic time of the first check for leftover processes after the shell's exit; 0.0: no check
    # yet.
    _exit_seen_at = 0.0
    _tree: ProcessTree | None = None
    _stopping: Stopping | None = None
    _requested_signal = 0
    _reader = 0  # pid of the process that blocked in a read from stdin at the last check
    _acting = False
    _cancel_requested = False  # whether `cancel` was called, even if too late to have an effect
    _outcome: Outcome | None = None

    def __init__(
        self,
        name: str,
        plan: Plan,
        context: LoopContext,
        *,
        listening: Listening | None = None,
        event_sink: EventSink | None = None,
        record: "RunRecord | None" = None,
        on_outcome: Callable[[Outcome], None],
        on_started: Callback | None = None,
    ) -> None:
        """`on_started` is called after the shell is spawned; only a process that hosts the run for
        a client passes this callback. A run that is hosted for a client is recorded before its
        shell is spawned."""
        self.name = name  # run id; empty until the run record assigns one
        self._plan = plan
        self._context = context
        self._on_outcome = on_outcome
        self._record = record
        self.lane = plan.lane
        self._actions: deque[Action] = deque()
        self._timers: list[Timer] = []
        self._builder = OutcomeBuilder()
        self._on_started = on_started
        self._start = ShellStart(plan, context, record, hosted=on_started is not None)
        self._event_sink = event_sink if listening is None else self._listener_thread(listening)
        # `cost` is the number of descriptors that the run needs while it runs.
        streams = 2 if plan.streams is Streams.SEPARATE else 1
        spills = plan.spill is not None and plan.spill.when is When.ALWAYS
        # A run that is hosted for a client needs a descriptor for each output file, because its
        # output may be moved to disk later.
        spills = spills or on_started is not None
        self.cost = 1 + (2 * streams if spills else streams) + isinstance(plan.stdin, OpenStdin)

    # Methods for requests to a run; threads other than the thread of the run's event loop must call
    # them through `loop.post`.

    def start(self) -> None:
        if self._context.queue.enter(self):
            self._trigger(Trigger.SLOT_FREE)

    def cancel(self, number: int = signal.SIGTERM) -> None:
        """Stop the command: the first call of `cancel` sends signal `number`, the second call kills
        the process tree."""
        self._cancel_requested = True
        self.resume()
        if self._state is State.RUNNING:
            self._stopping = Stopping(number, self._plan.limits.grace)
        if self._outcome is not None:
            # The command has ended; deliver its outcome without waiting for the listener.
            self._deliver()
        self._trigger(Trigger.CANCEL)

    def signal(self, number: int) -> None:
        self._requested_signal = number
        self._trigger(Trigger.SIGNAL)

    def end(self, number: int, grace: float, *, cancel: bool = False) -> None:
        """End the run's process tree with signal `number`, and with KILL after `grace` seconds.
        Only with `cancel`, the outcome says that the run was cancelled."""
        if self._state is State.RUNNING:
            self._stopping = Stopping(number, grace)
        elif self._stopping is not None:
            self._stopping.signal, self._stopping.grace = number, grace
        self._trigger(Trigger.JOB_CANCEL if cancel else Trigger.END)

    def write(self, data: bytes, *, eof: bool, wait_for_room: bool, then: OnWritten) -> None:
        """Write bytes to the run's stdin. The callback `then` gets None when the bytes for stdin
        are accepted, else the refusal."""
        if self.queued:
            problem = f"{self.name} is queued and reads no input yet; wait until it runs, and retry"
            then(Unavailable(problem=problem))
        elif self._stdin is None:
            problem = (
                "the run was started without an open stdin; start it again with interactive to "
                "write to it"
            )
            then(Unavailable(problem=problem))
        else:
            self._stdin.write(data, eof=eof, wait_for_room=wait_for_room, then=then)

    def detach(self, *, job: bool = False) -> Running:
        """Detach the run from its caller: move the run's output to disk, and free its session and
        its lane (group of runs that execute one at a time) for the next command. A run that has
        just started keeps its session for a moment, so that quick commands of a session run one
        after another."""
        assert self._child is not None
        session = self._plan.session
        hold = 0.0 if session is None else session.hold + self._builder.started_at - now()
        if hold > 0:
            self._call_later(hold, self._leave_session)
        else:
            self._leave_session()
        output = self._output.move_to_disk()[0]
        if self._record is not None:
            process = processes.read_process(self._child.pid)
            shell = Survivor(
                pid=self._child.pid, started=process.started if process else 0, command=""
            )
            with suppress(OSError):
                self._record.detach(shell, job=job)
        return self._build_running(output)

    def _leave_session(self) -> None:
        """Free the run's session and its lane for the next command."""
        self._context.queue.leave_lane(self)
        if self._lease is not None:
            self._lease.release(self.name)

    def question(self) -> tuple[int, int] | None:
        """Return None unless the run waits for input on its stdin.

        While the run waits for input, `question` returns two counts: the bytes of output read so
        far, and the bytes of stdin written so far. If two calls of `question` return different
        counts, a new wait for input has begun between the calls.
        """
        pipe = None if self._stdin is None else self._stdin.drained_pipe
        if self._child is None or self._stdin is None or pipe is None:
            return None
        readers = (
            each.pid
            for each in self._process_tree().members()
            if blocked_readers.waits_to_read(each.pid, pipe)
        )
        reader = next(readers, None)
        if reader is None:
            return None
        self._reader = reader
        return self._output.size, self._stdin.written

    def with_input_wait(self, running: Running) -> Running:
        """Add to a response that the run waits for input, and where."""
        assert self._stdin is not None
        shell = reading_shell.identify_shell(self._reader, self._plan.shell)
        return msgspec.structs.replace(
            running,
            waits_for_input=True,
            input_lines=self._stdin.lines,
            shell_reads=shell is not None,
            shell_script=None if shell is None else shell.script,
        )

    def copy_to_disk(self) -> None:
        """Write the run's output to a file as well, where other processes can read it."""
        self._output.copy_to_disk()

    def on_listener_room(self) -> None:
        """Resume reading the output pipes, because the listener's buffer has room again."""
        if self._child is not None:
            self._output.watch()

    def on_listener_done(self) -> None:
        """Deliver the run's outcome, because the listener has received the last event."""
        if self._event_sink is not None:
            self._event_sink.join()
        self._deliver()

    def snapshot(self) -> Running:
        """Return the current state of the run, which may be queued, running or ending."""
        if self._child is None:
            return Running(
                run=self.name,
                pid=0,
                seconds=0.0,
                output=Capture(),
                queued=True,
                queued_behind=self._lane_holder(),
            )
        return self._build_running(self._output.captures_so_far()[0])

    def _lane_holder(self) -> str:
        """Return the id of the run for which this queued run waits; empty if it is unknown."""
        holder = self._context.queue.lane_holder(self.lane)
        return "" if holder == self.name else holder

    def _build_running(self, output: Capture) -> Running:
        assert self._child is not None
        log = self._output.captures_so_far()[0].saved
        return Running(
            run=self.name,
            pid=self._child.pid,
            seconds=now() - self._builder.started_at,
            output=output,
            log=None if log is None else log.path,
        )

    @property
    def queued(self) -> bool:
        return self._state is State.QUEUED

    @property
    def started(self) -> bool:
        return self._child is not None

    @property
    def reads_setup(self) -> bool:
        return self._start.reads_setup

    # Methods that execute the lifecycle table (states, triggers, actions).

    def _trigger(self, trigger: Trigger) -> None:
        self._state, actions = next_step(self._state, trigger)
        self._actions.extend(actions)
        self.resume()

    def resume(self) -> None:
        """Execute the queued lifecycle actions of the run.

        If an interrupt (Ctrl-C) cuts a lifecycle action short, the next call of `resume` repeats
        this action and then executes the remaining actions.
        """
        if self._acting:
            # This nested call of `resume` was made by an action; the outer call of `resume` will
            # execute the new actions.
            return
        self._acting = True
        todo = self._actions
        try:
            while todo:
                try:
                    _ACTIONS[todo[0]](self)
                except Exception as error:
                    if self._on_started is None:
                        raise
                    self._contain_error(todo[0], error)
                todo.popleft()
        finally:
            self._acting = False

    def _contain_error(self, action: Action, error: Exception) -> None:
        """Print the unexpected error of a lifecycle action; if the run cannot start or its outcome
        cannot be built, end the run with the data known so far.

        A process that hosts runs for clients must go on serving its other runs after an error in
        one run. An action that failed with an unexpected error is not repeated.
        """
        import traceback

        traceback.print_exception(error)
        if action is Action.SPAWN and self._child is None:
            self._builder.refusal = CannotSpawn(reason=f"an internal error of nacre: {error!r}")
            self._trigger(Trigger.SPAWN_FAILED)
        elif action is Action.FINISH and self._outcome is None:
            self._outcome = Outcome(
                run=self.name,
                ending=self._builder.ending(self._plan.limits.timeout),
                output=Capture(),
            )
            self._deliver()

    def _arm(self, seconds: float, trigger: Trigger) -> None:
        self._call_later(seconds, partial(self._trigger, trigger))

    def _call_later(self, seconds: float, call: Callback) -> Timer:
        self._timers.append(timer := self._context.loop.call_later(seconds, call))
        return timer

    def _cancel_timers(self) -> None:
        while self._timers:
            self._timers.pop().cancel()

    # Methods that start the run's shell.

    def on_slot(self) -> None:
        self._context.loop.post(lambda: self._trigger(Trigger.SLOT_FREE))

    def _spawn(self) -> None:
        start, queue = self._start, self._context.queue
        if start.roll_back() and self._cancel_requested:
            self._trigger(Trigger.SPAWN_FAILED)
            return
        try:
            shell = start.try_start(partial(self._trigger, Trigger.SLOT_FREE))
        except Refused as refused:
            if isinstance(refused.refusal, NoDescriptors) and queue.requeue_first(self):
                self._trigger(Trigger.NO_DESCRIPTORS)
            else:
                self._builder.refusal = refused.refusal
                self._trigger(Trigger.SPAWN_FAILED)
            return
        if shell is None:
            self._trigger(Trigger.SESSION_NOT_READY)
            return
        self._child, self._lease, self._plan = shell, start.lease, start.plan
        self._attach(shell)

    def _attach(self, shell: Child) -> None:
        context, plan, timeout = self._context, self._plan, self._plan.limits.timeout
        self._builder.started_at = now()
        context.shell_pids.add(shell.pid)
        self._output = output = Output(
            shell,
            plan,
            context.loop,
            context.pipe_growth,
            self._event_sink,
            self._record,
            on_end=self._on_pipes_end,
            on_disk_limit=lambda: self._trigger(Trigger.DISK_LIMIT),
        )
        if shell.stdin is not None and isinstance(plan.stdin, OpenStdin):
            self._stdin = StdinWriter(shell.stdin, context.loop, plan.stdin.initial)
        if self._lease is None:
            context.tag_index.start(shell.pid, alone=len(context.shell_pids) == 1)
        if not context.own_process and shell.tag is not None and self._lease is None:
            context.tag_index.tag_early_children(shell.pid, shell.tag, output.pipes)
        context.loop.watch(shell.pidfd, self._on_shell_exit)
        if self._event_sink is not None:
            if self._record is not None and self._on_started is None:
                self.name = self._record.assign_name()
            self._event_sink.on_started(Started(run=self.name, pid=shell.pid))
            self._watch()
        elif timeout is not None and timeout <= _QUIET_START:
            self._watch()
        else:
            self._call_later(_QUIET_START, self._watch)
        if self._on_started is not None:
            self._on_started()
        elif self._record is not None:
            # The run id is assigned while the command runs, because assigning it after the
            # command's end would delay the response to the caller.
            self._record.assign_name()

    def _watch(self) -> None:
        """Watch the output, arm the timeout and record the start, for a run that did not end at
        once."""
        # The kernel's count of OOM kills is read before the run record is written, so that an OOM
        # kill of the command during the write is detected as an increase of the count.
        self._builder.oom_kills_before = processes.count_oom_kills()
        if self._record is not None:
            self.name = self._record.write_start() if self._on_started is None else self.name
        self._output.watch()
        timeout = self._plan.limits.timeout
        if timeout is not None:
            self._arm(self._builder.started_at + timeout - now(), Trigger.DEADLINE)

    def _drain(self) -> None:
        self._output.drain()
        if self._output.ended:
            self._on_pipes_end()
        else:
            self._arm(self._plan.limits.drain, Trigger.DRAIN_OVER)

    def _on_pipes_end(self) -> None:
        self._trigger(Trigger.PIPES_ENDED)

    # Methods that stop the run's process tree.

    def _process_tree(self) -> ProcessTree:
        if self._tree is None:
            assert self._child is not None
            self._tree = self._context.new_process_tree(self._child, self._output.pipes())
        return self._tree

    def _signal_tree(self) -> None:
        self._process_tree().signal(self._requested_signal)

    def _stop(self) -> Stopping:
        if self._stopping is None:
            self._stopping = Stopping(signal.SIGTERM, self._plan.limits.grace)
        return self._stopping

    def _stop_tree(self) -> None:
        self._output.read_without_backpressure()
        self._stop().request(self._process_tree())

    def _stop_leftovers(self) -> None:
        self._stop().request_leftovers(self._process_tree())

    def _arm_grace(self) -> None:
        self._arm(self._stop().grace, Trigger.GRACE_OVER)

    def _kill_tree(self) -> None:
        self._stop().kill(self._process_tree())
        self._builder.killing = True

    def _watch_tree(self) -> None:
        """Poll the run's process tree at growing intervals until no process of the tree is left."""
        if self._state is not State.STOPPING:
            return
        stopping = self._stop()
        if not stopping.find_remaining(self._process_tree()) and self._builder.exited:
            self._trigger(Trigger.TREE_EMPTY)
        else:
            stopping.poll_later(self._call_later, self._watch_tree)

    # Methods that end the run after its shell has exited.

    def _on_shell_exit(self) -> None:
        assert self._child is not None
        if self._plan.leftovers is LeftoverPolicy.KEEP:
            self._trigger(Trigger.EXIT)
        elif self._may_end_leftovers():
            self._trigger(Trigger.EXIT_TERMINATING_LEFTOVERS)
        else:
            self._context.loop.unwatch(self._child.pidfd)
            self._call_later(_EXIT_POLL, self._on_shell_exit)

    def _may_end_leftovers(self) -> bool:
        """Return whether the leftover processes of the exited shell can be ended now.

        Leftover processes are not ended while a process saves the session state, because this
        process would be ended with them. Leftover processes are not ended while one of them is
        inside execve(2), because it has no name yet that the outcome could report.
        """
        self._exit_seen_at = self._exit_seen_at or now()
        seconds, find = now() - self._exit_seen_at, self._process_tree().members
        if self._lease is not None and self._lease.may_be_saving(find, seconds):
            return False
        return not are_starting(find(), seconds)

    def _note_exit(self) -> None:
        assert self._child is not None
        self._context.loop.unwatch(self._child.pidfd)
        self._builder.ended_at = now()
        self._builder.exited = True

    def _note_leftovers(self) -> None:
        """Remember, for the outcome, the leftover processes that are about to be ended because the
        shell has exited."""
        self._builder.at_exit = name_processes(self._process_tree().members(), self._lease)

    def _find_leftovers(self) -> None:
        shell, context = self._child, self._context
        assert shell is not None
        if self._lease is None and self._tree is None and not context.own_process:
            left = context.tag_index.find_leftovers(shell.pid, shell.tag)
            if not left:  # most commands leave no process running
                self._trigger(Trigger.LEFTOVERS_KNOWN)
                return
            self._new_leftover_search().describe(left)
            return
        status = None
        if self._lease is not None and self._builder.exited:
            status = ending_code(children.collect(shell.pidfd, leave=True))
        self._new_leftover_search().start(shell, status, self._tree, self._process_tree)

    def _new_leftover_search(self) -> LeftoverSearch:
        return LeftoverSearch(self._context, self._lease, self._call_later, self._on_leftovers)

    def _on_leftovers(self, found: tuple[Survivor, ...]) -> None:
        self._builder.left_running = found
        self._trigger(Trigger.LEFTOVERS_KNOWN)

    def _finish(self) -> None:
        if self._timers:
            self._cancel_timers()
        if self._child is not None:
            self._release(self._child)
        self._context.queue.leave(self)
        if self._lease is not None:
            self._lease.abandon()
        if self._outcome is None:
            builder = self._builder
            output = None if builder.reason is EndReason.NOT_STARTED else self._output
            builder.session_problem = self._start.session_problem
            builder.pipelines = self._start.read_report()
            self._outcome = builder.build(self.name, self._plan, output, self._record, self._lease)
        if self._leftover_pipes is not None:
            leftover, self._leftover_pipes = self._leftover_pipes, None
            leftover.run = self._outcome.run
            if self._record is not None and self._plan.spill is not None:
                leftover.workspace = self._record.workspace
                leftover.limit = self._plan.spill.limit
            self._context.on_leftover(leftover)
        if self._event_sink is None:
            self._deliver()
        else:
            self._wait_for_listener(self._event_sink, self._outcome)

    def _release(self, shell: Child) -> None:
        """Reap the exited shell, and keep its output pipes that are still open as
        `LeftoverPipes`."""
        if not self._builder.exited:
            self._builder.ended_at = now()
            self._context.loop.unwatch(shell.pidfd)
        elif self._builder.status is None:
            self._builder.status = children.collect(shell.pidfd)
        self._context.shell_pids.discard(shell.pid)
        if self._stdin is not None:
            self._stdin.close()
        # If Ctrl-C interrupts `_release` after `_child` is set to None, the rest of `_release` is
        # never executed, so a descriptor of the shell stays open.
        self._child = None
        pipes = {} if self._output.ended else self._output.release_pipes()
        if self._builder.exited:
            os.close(shell.pidfd)
        if pipes or not self._builder.exited:
            self._leftover_pipes = LeftoverPipes(
                pipes, None if self._builder.exited else shell.pidfd
            )

    # Methods that deliver events to the listener, and the outcome to the caller.

    def _listener_thread(self, listening: Listening) -> ListenerThread:
        return start_listener_thread(
            listening,
            self._context.loop,
            on_room=self.on_listener_room,
            on_delivered=self.on_listener_done,
        )

    def _wait_for_listener(self, event_sink: EventSink, outcome: Outcome) -> None:
        event_sink.on_finished(Finished(run=self.name, outcome=outcome))
        linger = event_sink.linger
        if self._cancel_requested:
            # A caller that cancels a run does not want to wait for a listener that may be stuck.
            linger = _CANCELLED_LINGER if linger is None else min(linger, _CANCELLED_LINGER)
        if linger is not None:
            self._call_later(linger, self._deliver)

    def _deliver(self) -> None:
        """Pass the run's outcome to the callback `on_outcome`; a second call of `_deliver` has no
        effect."""
        if self._timers:
            self._cancel_timers()
        if self._outcome is not None:
            self._on_outcome(self._outcome)
            self._outcome = None


def _note_reason(reason: EndReason, run: Run) -> None:
    run._builder.reason = reason


_ACTIONS: Final[dict[Action, Callable[[Run], None]]] = {
    Action.SPAWN: Run._spawn,
    Action.NOTE_NOT_STARTED: partial(_note_reason, EndReason.NOT_STARTED),
    Action.NOTE_TIMEOUT: partial(_note_reason, EndReason.TIMEOUT),
    Action.NOTE_CANCEL: partial(_note_reason, EndReason.CANCEL),
    Action.NOTE_EXIT: Run._note_exit,
    Action.NOTE_LEFTOVERS: Run._note_leftovers,
    Action.STOP_TREE: Run._stop_tree,
    Action.STOP_LEFTOVERS: Run._stop_leftovers,
    Action.ARM_GRACE: Run._arm_grace,
    Action.SIGNAL_TREE: Run._signal_tree,
    Action.KILL_TREE: Run._kill_tree,
    Action.ARM_KILL_WAIT: lambda run: run._arm(run._plan.limits.kill_wait, Trigger.CANNOT_KILL),
    Action.WATCH_TREE: Run._watch_tree,
    Action.DRAIN: Run._drain,
    Action.FIND_LEFTOVERS: Run._find_leftovers,
    Action.FINISH: Run._finish,
}
