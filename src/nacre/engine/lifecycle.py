"""The lifecycle of a run, as a pure table of states and triggers, without processes and clocks.

`next_step(state, trigger)` returns the next state of a run and the actions to take; `engine/run`
executes the actions. If the lifecycle table has no entry for a trigger in the run's current state,
the trigger changes nothing: a deadline has no effect while the command is already being stopped,
and a cancel has no effect after the exit. Every race between two triggers (such as a deadline and a
cancel) has one result: the first trigger alone decides *why* the run ended.
"""

import enum
from typing import NamedTuple


class _Named(enum.Enum):
    # Enum members are singletons, so the identity hash is correct; it is computed in C, ten times
    # as fast as the hash of the member's name.
    __hash__ = object.__hash__


class State(_Named):
    QUEUED = "queued"
    RUNNING = "running"
    STOPPING = "stopping"
    DRAINING = "draining"
    SETTLING = "settling"
    DONE = "done"


class Trigger(_Named):
    SLOT_FREE = "a slot is free"
    SPAWN_FAILED = "the spawn fails"
    NO_DESCRIPTORS = "no descriptor is free, but other runs will end"
    SESSION_NOT_READY = "the session is not ready"
    DEADLINE = "the deadline passes"
    CANCEL = "cancel"
    SIGNAL = "a signal is requested"
    END = "the end is requested"
    JOB_CANCEL = "a job is cancelled"
    DISK_LIMIT = "the disk limit is reached and ends the run"
    EXIT = "the shell exits"
    EXIT_TERMINATING_LEFTOVERS = "the shell exits, and leftover processes are to end"
    GRACE_OVER = "the grace is over"
    TREE_EMPTY = "the tree is empty"
    CANNOT_KILL = "a process cannot be killed"
    PIPES_ENDED = "every pipe has ended"
    DRAIN_OVER = "the drain is over"
    LEFTOVERS_KNOWN = "the leftover processes are known"


class Action(_Named):
    SPAWN = "spawn"
    NOTE_NOT_STARTED = "record that nothing ran"
    NOTE_TIMEOUT = "record the timeout"
    NOTE_CANCEL = "record the cancel"
    NOTE_EXIT = "record the exit status"
    NOTE_LEFTOVERS = "record the leftover processes"
    STOP_TREE = "ask the tree to stop"
    STOP_LEFTOVERS = "ask the leftover processes to stop"
    ARM_GRACE = "arm the grace timer"
    SIGNAL_TREE = "signal the tree"
    KILL_TREE = "kill the tree"
    ARM_KILL_WAIT = "arm the give-up timer"
    WATCH_TREE = "watch the tree end"
    DRAIN = "read the rest of the pipes, at most for the drain time"
    FIND_LEFTOVERS = "search for leftover processes"
    FINISH = "deliver the outcome"


class Step(NamedTuple):
    to: State
    actions: tuple[Action, ...]


_KILL = (Action.KILL_TREE, Action.ARM_KILL_WAIT, Action.WATCH_TREE)
_STOP = (Action.STOP_TREE, Action.ARM_GRACE, Action.WATCH_TREE)

TABLE: dict[tuple[State, Trigger], Step] = {
    (State.QUEUED, Trigger.SLOT_FREE): Step(State.RUNNING, (Action.SPAWN,)),
    (State.QUEUED, Trigger.CANCEL): Step(State.DONE, (Action.NOTE_NOT_STARTED, Action.FINISH)),
    (State.QUEUED, Trigger.END): Step(State.DONE, (Action.NOTE_NOT_STARTED, Action.FINISH)),
    (State.QUEUED, Trigger.JOB_CANCEL): Step(State.DONE, (Action.NOTE_NOT_STARTED, Action.FINISH)),
    (State.RUNNING, Trigger.SPAWN_FAILED): Step(
        State.DONE, (Action.NOTE_NOT_STARTED, Action.FINISH)
    ),
    (State.RUNNING, Trigger.NO_DESCRIPTORS): Step(State.QUEUED, ()),
    (State.RUNNING, Trigger.SESSION_NOT_READY): Step(State.QUEUED, ()),
    (State.RUNNING, Trigger.DEADLINE): Step(State.STOPPING, (Action.NOTE_TIMEOUT, *_STOP)),
    (State.RUNNING, Trigger.CANCEL): Step(State.STOPPING, (Action.NOTE_CANCEL, *_STOP)),
    (State.RUNNING, Trigger.SIGNAL): Step(State.RUNNING, (Action.SIGNAL_TREE,)),
    # Unlike DEADLINE and CANCEL, the triggers END and DISK_LIMIT record no reason for the end of
    # the run, because the exit status of the shell says how the run ended.
    (State.RUNNING, Trigger.END): Step(State.STOPPING, _STOP),
    (State.RUNNING, Trigger.JOB_CANCEL): Step(State.STOPPING, (Action.NOTE_CANCEL, *_STOP)),
    (State.RUNNING, Trigger.DISK_LIMIT): Step(State.STOPPING, _STOP),
    (State.RUNNING, Trigger.EXIT): Step(State.DRAINING, (Action.NOTE_EXIT, Action.DRAIN)),
    (State.RUNNING, Trigger.EXIT_TERMINATING_LEFTOVERS): Step(
        State.STOPPING, (Action.NOTE_EXIT, Action.NOTE_LEFTOVERS, *_STOP)
    ),
    (State.STOPPING, Trigger.SIGNAL): Step(State.STOPPING, (Action.SIGNAL_TREE,)),
    (State.STOPPING, Trigger.EXIT): Step(
        State.STOPPING, (Action.NOTE_EXIT, Action.STOP_LEFTOVERS, Action.WATCH_TREE)
    ),
    (State.STOPPING, Trigger.EXIT_TERMINATING_LEFTOVERS): Step(
        State.STOPPING, (Action.NOTE_EXIT, Action.STOP_LEFTOVERS, Action.WATCH_TREE)
    ),
    (State.STOPPING, Trigger.GRACE_OVER): Step(State.STOPPING, _KILL),
    (State.STOPPING, Trigger.END): Step(State.STOPPING, (Action.STOP_TREE, Action.ARM_GRACE)),
    (State.STOPPING, Trigger.JOB_CANCEL): Step(
        State.STOPPING, (Action.STOP_TREE, Action.ARM_GRACE)
    ),
    # A second cancel kills the process tree at once, without waiting for the grace (seconds between
    # TERM and KILL).
    (State.STOPPING, Trigger.CANCEL): Step(State.STOPPING, _KILL),
    (State.STOPPING, Trigger.TREE_EMPTY): Step(State.DRAINING, (Action.DRAIN,)),
    (State.STOPPING, Trigger.CANNOT_KILL): Step(State.DRAINING, (Action.DRAIN,)),
    (State.DRAINING, Trigger.PIPES_ENDED): Step(State.SETTLING, (Action.FIND_LEFTOVERS,)),
    (State.DRAINING, Trigger.DRAIN_OVER): Step(State.SETTLING, (Action.FIND_LEFTOVERS,)),
    # SETTLING is a state of its own because the search for leftover processes may have to wait for
    # a process inside execve(2), or for the process that saves the session state.
    (State.SETTLING, Trigger.LEFTOVERS_KNOWN): Step(State.DONE, (Action.FINISH,)),
}


def next_step(state: State, trigger: Trigger) -> Step:
    return TABLE.get((state, trigger)) or Step(state, ())
