"""One command under way: the lifecycle's table, carried out on real processes.

Everything here happens on the thread that drives the loop. `happen` looks up the table and does
what it says; descriptors and timers of the loop are what makes things happen.
"""

import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from nacre import proc
from nacre.asks import Running
from nacre.engine.epitaph import filled
from nacre.engine.feeding import Feeding, Then
from nacre.engine.ground import Ground
from nacre.engine.leftovers import Leftover
from nacre.engine.lifecycle import Action, Happening, State, next_step
from nacre.engine.output import Output
from nacre.engine.relay import Hearing, Relay, relayed
from nacre.engine.slots import Where
from nacre.engine.survivors import survivors
from nacre.events import Finished, Listening, Started
from nacre.loop import Call, Timer, now
from nacre.outcome import (
    Cancelled,
    Capture,
    Ending,
    Exited,
    Killed,
    Lost,
    NotStarted,
    Outcome,
    Survivor,
    TimedOut,
    code_of,
)
from nacre.plan import AtExit, Held, Plan, Streams, When
from nacre.proc import Process, blocked
from nacre.process import child as children
from nacre.process.birth import Birth
from nacre.process.child import Child
from nacre.process.tag import Tag
from nacre.process.tree import Tree, collect_strays
from nacre.refusals import (
    AnyRefusal,
    CalledOff,
    CannotSpawn,
    NoDescriptors,
    Refused,
    Unavailable,
)

if TYPE_CHECKING:  # whoever runs without a store need not load it
    from nacre.engine.taken import Taken
    from nacre.store.record import Record

# Most commands are over before this, and are left alone until they are: output that fits the pipe
# can wait there, and every wake-up that they are spared is a few percent of their time.
_HEAD_START: Final = 0.004
# How long the listener of a cancelled command is waited for.
_LAST_WORDS: Final = 1.0
# How soon we look again whether a tree has ended, and how slow that becomes.
_FIRST_LOOK: Final = 0.001
_SLOWEST_LOOK: Final = 0.05


class Run:
    where = Where.OUT
    _state = State.QUEUED
    _tag: Tag | None = None
    _child: Child | None = None
    _output: Output  # from the spawn on
    _feeding: Feeding | None = None
    _leftover: Leftover | None = None
    _grace: float | None = None  # instead of the plan's
    _birth: Birth | None = None  # the child's; undone, should we be interrupted before we have it
    _taken: "Taken | None" = None  # the session that it is a command of
    _unkept = ""  # why there is none
    _exit_seen = 0.0  # when its shell had ended, where that is not yet its end
    _tree: Tree | None = None
    _next_look: Timer | None = None
    _look_pause = _FIRST_LOOK
    _stop_signal: int = signal.SIGTERM
    _asked_signal = 0
    _working = False
    # What the outcome is made of.
    _why: AnyRefusal = CalledOff()
    _reason: Action | None = None
    _began = 0.0
    _ended = 0.0
    _exited = False
    _status: Exited | Killed | None = None
    _killing = False
    _kills_before: int | None = None  # processes that the kernel had killed for their memory
    reads_setup = False  # it waits for the user's set-up, which is read once, and in bounded time
    _unwanted = False  # somebody has cancelled, be it too late to matter
    _left: tuple[Survivor, ...] = ()
    _rest: tuple[Survivor, ...] = ()  # what was there when the shell had exited
    _outcome: Outcome | None = None

    def __init__(
        self,
        name: str,
        plan: Plan,
        ground: Ground,
        *,
        listening: Listening | None = None,
        hearing: Hearing | None = None,
        record: "Record | None" = None,
        answer: Callable[[Outcome], None],
        started: Call | None = None,
    ) -> None:
        """`started` is called after the spawn, by whoever runs this for somebody else; then it is
        written down before the spawn, too."""
        self.name = name  # of one that is recorded only when it has begun
        self._plan = plan
        self._ground = ground
        self._answer = answer
        self._record = record
        self.lane = plan.lane
        self._todo: deque[Action] = deque()
        self._timers: list[Timer] = []
        self._started = started
        if record is not None and (started is not None or record.early):
            self._tag = ground.spawner.new_tag()  # it stands in what is written before the spawn
            record.tag = None if self._tag is None else self._tag.value
        self._relay = hearing if listening is None else self._make_relay(listening)
        # The descriptors that it takes while it runs.
        streams = 2 if plan.streams is Streams.SEPARATE else 1
        spills = plan.spill is not None and plan.spill.when is When.ALWAYS
        spills = spills or started is not None  # who runs it for others may have it go to disk
        self.cost = 1 + (2 * streams if spills else streams) + isinstance(plan.stdin, Held)

    # What others may do to a run; from another thread only by way of `loop.post`.

    def begin(self) -> None:
        if self._ground.slots.enter(self):
            self._happen(Happening.SLOT)

    def cancel(self, number: int = signal.SIGTERM) -> None:
        """Stop it, beginning with this signal; a second time: kill it."""
        self._unwanted = True
        self.work()
        if self._state is State.RUNNING:
            self._stop_signal = number
        if self._outcome is not None:
            self._deliver()  # only its listener is still busy, and shall not be waited for
        self._happen(Happening.CANCEL)

    def signal(self, number: int) -> None:
        self._asked_signal = number
        self._happen(Happening.SIGNAL)

    def end(self, number: int, grace: float) -> None:
        """Have it end, and all that it has started. It is not cancelled: nobody called it off."""
        if self._state in (State.RUNNING, State.STOPPING):
            self._stop_signal, self._grace = number, grace
        self._happen(Happening.END)

    def write(self, data: bytes, *, eof: bool, waits: bool, then: Then) -> None:
        """`then` is told when it is taken, or why it is not."""
        if self._feeding is None:
            problem = (
                "it was started without an open stdin, so nothing can be written to it; start it "
                "again, as interactive"
            )
            then(Unavailable(problem=problem))
        else:
            self._feeding.write(data, eof=eof, waits=waits, then=then)

    def hand_over(self, *, job: bool = False) -> Running:
        """Go on without whoever has started it: nobody waits behind it, its output is on disk."""
        assert self._child is not None
        self._ground.slots.leave_lane(self)
        if self._taken is not None:
            self._taken.let_go()
        output = self._output.to_disk()[0]
        if self._record is not None:
            process = proc.look(self._child.pid)
            shell = Survivor(
                pid=self._child.pid, started=process.started if process else 0, command=""
            )
            with suppress(OSError):
                self._record.hand_over(shell, job=job)
        return self._running(output)

    def question(self) -> tuple[int, int] | None:
        """Not None while it waits for input: then what it has said and been told by now, in bytes,
        which is another question once that has changed."""
        pipe = None if self._feeding is None else self._feeding.pipe
        if self._child is None or self._feeding is None or pipe is None:
            return None
        if not any(blocked.reads(each.pid, pipe) for each in self._the_tree().members()):
            return None
        return self._output.size, self._feeding.written

    def to_disk(self) -> None:
        """Have its output in a file as well, for others to read."""
        self._output.tee()

    def hear_again(self) -> None:
        """Whoever hears it has room again."""
        if self._child is not None:
            self._output.listen()

    def heard(self) -> None:
        """Whoever hears it has heard all of it."""
        if self._relay is not None:
            self._relay.join()
        self._deliver()

    def running(self) -> Running:
        """As it is now; it may still stand in line, or be just ending."""
        if self._child is None:
            return Running(run=self.name, pid=0, seconds=0.0, output=Capture())
        return self._running(self._output.so_far()[0])

    def _running(self, output: Capture) -> Running:
        assert self._child is not None
        log = self._output.so_far()[0].saved
        return Running(
            run=self.name,
            pid=self._child.pid,
            seconds=now() - self._began,
            output=output,
            log=None if log is None else log.path,
        )

    @property
    def queued(self) -> bool:
        return self._state is State.QUEUED

    @property
    def under_way(self) -> bool:
        return self._child is not None

    # The table.

    def _happen(self, happening: Happening) -> None:
        self._state, actions = next_step(self._state, happening)
        self._todo.extend(actions)
        self.work()

    def work(self) -> None:
        """Do what is to be done. An interrupt (Ctrl-C in a host) leaves the rest for later, and
        what was being done is then done again."""
        if self._working:
            return  # an action has made something happen: its own actions come after it
        self._working = True
        todo = self._todo
        try:
            while todo:
                try:
                    _DO[todo[0]](self)
                except Exception as error:
                    if self._started is None:
                        raise
                    self._survive(todo[0], error)
                todo.popleft()
        finally:
            self._working = False

    def _survive(self, action: Action, error: Exception) -> None:
        """Something went wrong that should not. Whoever runs this for others has others to see to:
        this run is answered with what is known, and what was to be done is not tried again."""
        import traceback

        traceback.print_exception(error)
        if action is Action.SPAWN and self._child is None:
            self._why = CannotSpawn(reason=f"an error of nacre's own: {error!r}")
            self._happen(Happening.SPAWN_FAILED)
        elif action is Action.FINISH and self._outcome is None:
            self._outcome = Outcome(run=self.name, ending=self._ending(), output=Capture())
            self._deliver()

    def _arm(self, seconds: float, happening: Happening) -> None:
        self._later(seconds, partial(self._happen, happening))

    def _later(self, seconds: float, call: Call) -> Timer:
        self._timers.append(timer := self._ground.loop.after(seconds, call))
        return timer

    def _cancel_timers(self) -> None:
        while self._timers:
            self._timers.pop().cancel()

    # Starting.

    def granted(self) -> None:
        self._ground.loop.post(lambda: self._happen(Happening.SLOT))

    def _spawn(self) -> None:
        if self._child is not None:
            self._follow(self._child)  # we were interrupted while we began to
            return
        if self._birth is not None:  # we were interrupted while it was born
            self._birth.undo()
            self._birth = None
            if self._unwanted:
                self._happen(Happening.SPAWN_FAILED)
                return
        ground = self._ground
        try:
            if self._plan.chores:
                self._do_chores()
            mark = self._tag = self._tag or ground.spawner.new_tag()
            if self._record is not None:
                self._record.tag = None if mark is None else mark.value
                if self._started is not None or self._record.early:
                    self._record.begin()
            if self._plan.session is not None and not self._take_shell(mark):
                self._happen(Happening.NOT_READY)
                return
            if self._child is None:
                self._birth = birth = Birth()
                self._child = ground.spawner.spawn(self._plan, birth, mark)
        except Refused as refused:
            self._birth = None
            if isinstance(refused.refusal, NoDescriptors) and ground.slots.step_back(self):
                self._happen(Happening.NO_ROOM)
            else:
                self._why = refused.refusal
                self._happen(Happening.SPAWN_FAILED)
            return
        self._follow(self._child)

    def _take_shell(self, mark: Tag | None) -> bool:
        """The shell of its session; False: that is not ready, and says when it is worth another
        try. Where nothing can be remembered, it runs all the same. Raises Refused."""
        from nacre.engine.sessions import CannotKeep, without

        ground = self._ground
        ready = partial(self._happen, Happening.SLOT)
        ground.census.begin(None, alone=not ground.shells)
        try:
            taken = ground.sessions().take(self._plan, ground.spawner, mark, ground.loop, ready)
        except CannotKeep as why:
            self._plan, self._unkept = without(self._plan), str(why)
            return True
        if taken is None:
            self.reads_setup = ground.sessions().reads_setup_of(self._plan)
            return False
        self._child, self._taken = taken
        return True

    def _do_chores(self) -> None:
        from nacre.store import chores  # few have any

        chores.do(self._plan.chores)

    def _follow(self, shell: Child) -> None:
        ground, plan, timeout = self._ground, self._plan, self._plan.limits.timeout
        self._began = now()
        ground.shells.add(shell.pid)
        self._output = output = Output(
            shell,
            plan,
            ground.loop,
            ground.growth,
            self._relay,
            self._record,
            dry=self._dry,
            full=lambda: self._happen(Happening.DISK_LIMIT),
        )
        if shell.stdin is not None and isinstance(plan.stdin, Held):
            self._feeding = Feeding(shell.stdin, ground.loop, plan.stdin.first)
        if self._taken is None:
            ground.census.begin(shell.pid, alone=len(ground.shells) == 1)
        if not ground.ours and shell.tag is not None and self._taken is None:
            ground.census.tag_early_children(shell.pid, shell.tag, output.pipes)
        ground.loop.watch(shell.pidfd, self._shell_ended)
        if self._relay is not None:
            if self._record is not None and self._started is None:
                self.name = self._record.number()
            self._relay.start(Started(run=self.name, pid=shell.pid))
            self._attend()
        elif timeout is not None and timeout <= _HEAD_START:
            self._attend()
        else:
            self._later(_HEAD_START, self._attend)
        if self._started is not None:
            self._started()
        elif self._record is not None:
            self._record.number()  # while it runs: at its end somebody waits for us

    def _attend(self) -> None:
        """Hear what it says, mind its time and write it down: it is not one of those that are over
        at once."""
        if self._record is not None:
            self.name = self._record.begin() if self._started is None else self.name
        self._kills_before = proc.out_of_memory_kills()
        self._output.listen()
        timeout = self._plan.limits.timeout
        if timeout is not None:
            self._arm(self._began + timeout - now(), Happening.DEADLINE)

    def _drain(self) -> None:
        self._output.drain()
        if self._output.ended:
            self._dry()
        else:
            self._arm(self._plan.limits.drain, Happening.DRAIN_OVER)

    def _dry(self) -> None:
        self._happen(Happening.DRY)

    # Stopping.

    def _the_tree(self) -> Tree:
        assert self._child is not None
        if self._tree is None:
            self._tree = Tree(
                self._child.pid,
                self._child.tag,
                pipes=self._output.pipes(),
                adopts=self._adopts,
                spare=self._ground.census.spare_descriptors,
            )
        return self._tree

    def _adopts(self) -> bool:
        """Whether an orphan that came to us can only be of this run."""
        return self._ground.ours and len(self._ground.shells) == 1

    def _signal_tree(self) -> None:
        self._the_tree().signal(self._asked_signal)

    def _stop_tree(self) -> None:
        self._output.hurry()
        self._the_tree().signal(self._stop_signal)

    def _stop_rest(self) -> None:
        """What the shell left behind may ignore INT (bash has background jobs do so), not TERM."""
        if self._stop_signal != signal.SIGTERM:
            self._the_tree().signal(signal.SIGTERM)

    def _arm_grace(self) -> None:
        grace = self._plan.limits.grace if self._grace is None else self._grace
        self._arm(grace, Happening.GRACE_OVER)

    def _kill_tree(self) -> None:
        self._look_pause = _FIRST_LOOK
        self._the_tree().kill()
        self._killing = True

    def _watch_tree(self) -> None:
        """Look again and again, less and less often, whether all of it has ended."""
        if self._state is not State.STOPPING:
            return
        left = self._the_tree().kill() if self._killing else self._the_tree().members()
        if not left and self._exited:
            self._happen(Happening.TREE_EMPTY)
            return
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look = self._later(self._look_pause, self._watch_tree)
        self._look_pause = min(self._look_pause * 2, _SLOWEST_LOOK)

    # Ending.

    def _note_reason(self, reason: Action) -> None:
        self._reason = reason

    def _shell_ended(self) -> None:
        assert self._child is not None
        keeps = self._plan.leave is AtExit.KEEP
        if self._taken is not None and not keeps:
            self._exit_seen = self._exit_seen or now()
            if self._taken.saving(now() - self._exit_seen):
                # Whoever saves its state must not be ended with what it has left running.
                self._ground.loop.forget(self._child.pidfd)
                self._later(_FIRST_LOOK, self._shell_ended)
                return
        self._happen(Happening.EXIT if keeps else Happening.EXIT_OF_ALL)

    def _note_exit(self) -> None:
        assert self._child is not None
        self._ground.loop.forget(self._child.pidfd)
        self._ended = now()
        self._exited = True

    def _note_rest(self) -> None:
        """Of what is about to be ended with it."""
        self._rest = self._named(survivors(self._the_tree().members()))

    def _look_who_is_left(self) -> None:
        assert self._child is not None
        with self._ground.sessions.births if self._ground.ours else nullcontext():
            left = self._looked(self._child)
        if self._taken is not None:
            ended = children.collect(self._child.pidfd, leave=True) if self._exited else None
            left = self._taken.ended(left, code_of(ended))
        if left:
            self._left = self._named(survivors(left))

    def _looked(self, shell: Child) -> list[Process]:
        if self._tree is None and not (self._ground.ours and self._has_strays()):
            return self._ground.census.left_by(shell.pid, shell.tag)
        return self._the_tree().members()

    def _named(self, left: tuple[Survivor, ...]) -> tuple[Survivor, ...]:
        return left if self._taken is None else self._taken.named(left)

    def _has_strays(self) -> bool:
        """Whether orphans have come to us, the subreaper, and live."""
        strays = collect_strays(self._ground.shells | self._ground.sessions.pids)
        if self._taken is not None:
            strays = [pid for pid in strays if not self._taken.saves(pid)]
        return bool(strays)

    def _finish(self) -> None:
        if self._timers:
            self._cancel_timers()
        if self._child is not None:
            self._let_go(self._child)
        self._ground.slots.leave(self)
        if self._taken is not None:
            self._taken.let_go()
        if self._outcome is None:
            self._outcome = self._made_outcome()
        if self._leftover is not None:
            leftover, self._leftover = self._leftover, None
            leftover.run = self._outcome.run
            if self._record is not None and self._plan.spill is not None:
                leftover.workspace = self._record.workspace
                leftover.limit = self._plan.spill.limit
            self._ground.leave(leftover)
        if self._relay is None:
            self._deliver()
        else:
            self._wait_for_listener(self._relay, self._outcome)

    def _made_outcome(self) -> Outcome:
        if self._reason is Action.NOTE_NOT_STARTED:
            captures = [Capture()] * (2 if self._plan.streams is Streams.SEPARATE else 1)
        else:
            if self._plan.epitaph is not None:
                self._output.owe(filled(self._plan.epitaph, self._ending()))
            captures = self._output.close()
        record = self._record
        outcome = Outcome(
            run=self.name if record is None else record.number(),
            ending=self._ending(),
            output=captures[0],
            errors=captures[1] if len(captures) == 2 else None,
            seconds=self._ended - self._began,
            left_running=self._left,
            put_down=tuple(each for each in self._rest if each not in self._left),
            out_of_memory=self._out_of_memory(),
            kept=self._kept(),
            unkept=self._unkept,
            forgot=self._taken is not None and self._taken.lost,
        )
        settle = self._output.settle if self._plan.epitaph is not None else None
        if record is not None and record.end(outcome, settle):
            return msgspec.structs.replace(outcome, stored=True)
        return outcome

    def _kept(self) -> bool | None:
        """Whether its session knows of it; None: it has none."""
        if self._taken is None:
            return False if self._unkept else None
        return self._taken.kept

    def _out_of_memory(self) -> bool:
        """Whether the kernel may have killed it for that: nobody else has, and it killed."""
        killed = self._status in (Killed(signal.SIGKILL), Exited(128 + signal.SIGKILL))
        if not killed or self._killing or self._kills_before is None:
            return False
        return proc.out_of_memory_kills() > self._kills_before

    def _let_go(self, shell: Child) -> None:
        """Collect the shell; what is still open goes on without us."""
        if not self._exited:
            self._ended = now()
            self._ground.loop.forget(shell.pidfd)
        elif self._status is None:
            self._status = children.collect(shell.pidfd)
        self._ground.shells.discard(shell.pid)
        if self._feeding is not None:
            self._feeding.close()
        self._child = None  # from here on, an interrupt costs a descriptor
        pipes = {} if self._output.ended else self._output.let_go()
        if self._exited:
            os.close(shell.pidfd)
        if pipes or not self._exited:
            self._leftover = Leftover(pipes, None if self._exited else shell.pidfd)

    def _ending(self) -> Ending:
        match self._reason:
            case Action.NOTE_NOT_STARTED:
                return NotStarted(self._why)
            case Action.NOTE_TIMEOUT:
                return TimedOut(self._plan.limits.timeout or 0.0, self._status)
            case Action.NOTE_CANCEL:
                return Cancelled(self._status)
            case _:
                return self._status or Lost(last_seen=self._ended - self._began)

    # Telling.

    def _make_relay(self, listening: Listening) -> Relay:
        return relayed(listening, self._ground.loop, room=self.hear_again, heard=self.heard)

    def _wait_for_listener(self, relay: Hearing, outcome: Outcome) -> None:
        relay.finish(Finished(run=self.name, outcome=outcome))
        linger = relay.linger
        if self._unwanted:
            # Whoever cancels does not want to wait for a listener that may be stuck.
            linger = _LAST_WORDS if linger is None else min(linger, _LAST_WORDS)
        if linger is not None:
            self._later(linger, self._deliver)

    def _deliver(self) -> None:
        """Answer, once."""
        if self._timers:
            self._cancel_timers()
        if self._outcome is not None:
            self._answer(self._outcome)
            self._outcome = None


_DO: Final[dict[Action, Callable[[Run], None]]] = {
    Action.SPAWN: Run._spawn,
    Action.NOTE_NOT_STARTED: lambda run: run._note_reason(Action.NOTE_NOT_STARTED),
    Action.NOTE_TIMEOUT: lambda run: run._note_reason(Action.NOTE_TIMEOUT),
    Action.NOTE_CANCEL: lambda run: run._note_reason(Action.NOTE_CANCEL),
    Action.NOTE_EXIT: Run._note_exit,
    Action.NOTE_REST: Run._note_rest,
    Action.STOP_TREE: Run._stop_tree,
    Action.STOP_REST: Run._stop_rest,
    Action.ARM_GRACE: Run._arm_grace,
    Action.SIGNAL_TREE: Run._signal_tree,
    Action.KILL_TREE: Run._kill_tree,
    Action.ARM_SURRENDER: lambda run: run._arm(run._plan.limits.surrender, Happening.SURRENDER),
    Action.WATCH_TREE: Run._watch_tree,
    Action.DRAIN: Run._drain,
    Action.LOOK: Run._look_who_is_left,
    Action.FINISH: Run._finish,
}
