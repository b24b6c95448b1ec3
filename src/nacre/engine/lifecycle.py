"""The life of a command, as a table. Pure: no process, no clock.

`next_step(state, trigger)` says what to become and what to do; `run` does it. What is not in
the table changes nothing: a deadline that comes while the command is already being stopped, a
cancel after the exit. So *why* it ended is written once, by whoever came first.
"""

import enum
from typing import NamedTuple


class _Named(enum.Enum):
    # Members are singletons: hashing them in C is right, and ten times as fast as by their name.
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
    NO_DESCRIPTORS = "no descriptors, but others will end"
    SESSION_NOT_READY = "its session is not ready"
    DEADLINE = "the deadline passes"
    CANCEL = "cancel"
    SIGNAL = "a signal is asked for"
    END = "its end is asked for"
    DISK_LIMIT = "the disk limit is reached, and shall end it"
    EXIT = "the shell exits"
    EXIT_TERMINATING_LEFTOVERS = "the shell exits, and what it leaves shall end"
    GRACE_OVER = "the grace is over"
    TREE_EMPTY = "the tree is empty"
    CANNOT_KILL = "it cannot be killed"
    PIPES_ENDED = "every pipe has ended"
    DRAIN_OVER = "the drain is over"
    LEFTOVERS_KNOWN = "it is known what is left running"


class Action(_Named):
    SPAWN = "spawn"
    NOTE_NOT_STARTED = "note that nothing ran"
    NOTE_TIMEOUT = "note the timeout"
    NOTE_CANCEL = "note the cancel"
    NOTE_EXIT = "note the status"
    NOTE_LEFTOVERS = "note who is left"
    STOP_TREE = "ask the tree to stop"
    STOP_LEFTOVERS = "ask the rest to stop"
    ARM_GRACE = "arm the grace"
    SIGNAL_TREE = "signal the tree"
    KILL_TREE = "kill the tree"
    ARM_KILL_WAIT = "arm the surrender"
    WATCH_TREE = "watch the tree end"
    DRAIN = "read what is left, for as long as the drain lasts"
    FIND_LEFTOVERS = "look who is left"
    FINISH = "answer"


class Step(NamedTuple):
    to: State
    actions: tuple[Action, ...]


_KILL = (Action.KILL_TREE, Action.ARM_KILL_WAIT, Action.WATCH_TREE)
_STOP = (Action.STOP_TREE, Action.ARM_GRACE, Action.WATCH_TREE)

TABLE: dict[tuple[State, Trigger], Step] = {
    (State.QUEUED, Trigger.SLOT_FREE): Step(State.RUNNING, (Action.SPAWN,)),
    (State.QUEUED, Trigger.CANCEL): Step(State.DONE, (Action.NOTE_NOT_STARTED, Action.FINISH)),
    (State.QUEUED, Trigger.END): Step(State.DONE, (Action.NOTE_NOT_STARTED, Action.FINISH)),
    (State.RUNNING, Trigger.SPAWN_FAILED): Step(
        State.DONE, (Action.NOTE_NOT_STARTED, Action.FINISH)
    ),
    (State.RUNNING, Trigger.NO_DESCRIPTORS): Step(State.QUEUED, ()),
    (State.RUNNING, Trigger.SESSION_NOT_READY): Step(State.QUEUED, ()),
    (State.RUNNING, Trigger.DEADLINE): Step(State.STOPPING, (Action.NOTE_TIMEOUT, *_STOP)),
    (State.RUNNING, Trigger.CANCEL): Step(State.STOPPING, (Action.NOTE_CANCEL, *_STOP)),
    (State.RUNNING, Trigger.SIGNAL): Step(State.RUNNING, (Action.SIGNAL_TREE,)),
    # These note no reason: how it ended is what the kernel says.
    (State.RUNNING, Trigger.END): Step(State.STOPPING, _STOP),
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
    # Whoever cancels twice will not wait for the grace.
    (State.STOPPING, Trigger.CANCEL): Step(State.STOPPING, _KILL),
    (State.STOPPING, Trigger.TREE_EMPTY): Step(State.DRAINING, (Action.DRAIN,)),
    (State.STOPPING, Trigger.CANNOT_KILL): Step(State.DRAINING, (Action.DRAIN,)),
    (State.DRAINING, Trigger.PIPES_ENDED): Step(State.SETTLING, (Action.FIND_LEFTOVERS,)),
    (State.DRAINING, Trigger.DRAIN_OVER): Step(State.SETTLING, (Action.FIND_LEFTOVERS,)),
    # Apart from draining: a session's saver, or a process inside execve, is waited for by a timer.
    (State.SETTLING, Trigger.LEFTOVERS_KNOWN): Step(State.DONE, (Action.FINISH,)),
}


def next_step(state: State, trigger: Trigger) -> Step:
    return TABLE.get((state, trigger)) or Step(state, ())
