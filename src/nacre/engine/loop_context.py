"""What the runs of one loop stand on: the loop, the spawner, and what they share."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from nacre.engine import leftover_pipes
from nacre.engine.leftover_pipes import LeftoverPipes
from nacre.engine.queue import RunQueue
from nacre.eventloop import EventLoop
from nacre.model.cancel import CancelToken
from nacre.model.plan import Plan
from nacre.process.pipe_reader import PipeGrowth
from nacre.process.process_tree import ProcessTree
from nacre.process.spawner import Child, Spawner
from nacre.process.tag_index import TagIndex

if TYPE_CHECKING:  # who has no sessions need not load them
    from nacre.sessions.manager import SessionManager


class Connection(Protocol):
    """A connection to somebody else who runs things, and reports to our loop."""

    @property
    def idle(self) -> bool:
        """Whether nothing is to be heard from it."""
        ...

    def stop_listening(self) -> None: ...

    def after_fork(self) -> None:
        """Let go of it, and change nothing for the parent."""
        ...

    def close(self) -> None: ...


OnLeftover = Callable[[LeftoverPipes], None]  # what becomes of the pipes of an ended command


class LazySessions:
    """The sessions of an engine, made when the first is wanted."""

    def __init__(
        self, run: Callable[[Plan, CancelToken], None] | None = None, *, prewarm: bool = False
    ) -> None:
        """`run` runs something of our own to its end; without, no set-up is read."""
        self.manager: SessionManager | None = None
        self._run_plan = run or _run_nothing
        self._prewarm = prewarm
        self._lock = threading.Lock()
        # Whoever looks for orphans must not take one for it that is just being born.
        self.spawn_lock = threading.Lock()

    def __call__(self) -> "SessionManager":
        manager = self.manager
        if manager is not None:
            return manager
        from nacre.sessions.manager import SessionManager

        with self._lock:
            self.manager = self.manager or SessionManager(
                self._run_plan, self.spawn_lock, prewarm=self._prewarm
            )
            return self.manager

    @property
    def pids(self) -> set[int]:
        """Of shells that wait."""
        return set() if self.manager is None else self.manager.pids

    def after_fork(self) -> None:
        self._lock, self.spawn_lock = threading.Lock(), threading.Lock()
        manager, self.manager = self.manager, None
        if manager is not None:
            manager.after_fork()

    def close(self) -> None:
        manager, self.manager = self.manager, None
        if manager is not None:
            manager.close()


def _run_nothing(plan: Plan, cancel: CancelToken) -> None:
    del plan, cancel


class LoopContext:
    """What the runs of one loop stand on."""

    def __init__(
        self,
        queue: RunQueue,
        *,
        own_process: bool,
        on_leftover: OnLeftover = leftover_pipes.park,
        sessions: LazySessions | None = None,
    ) -> None:
        self.connection: Connection | None = None
        self.on_leftover = on_leftover
        self.sessions = sessions or LazySessions()
        self.spawner = Spawner(own_process=own_process)
        self.loop = EventLoop()
        self.tag_index = TagIndex()
        self.pipe_growth = PipeGrowth()
        self.queue = queue
        self.own_process = (
            own_process  # this process is nacre's own, the subreaper, and has one loop
        )
        self.shell_pids: set[int] = set()  # not yet collected

    def intact(self) -> bool:
        """Whether our descriptors are still ours. A host may have closed whatever was open; then
        the numbers are somebody else's, and we are never touched again."""
        if self.loop.intact() and self.spawner.intact():
            return True
        self.spawner.disown()
        _disowned.append(self)
        return False

    def new_process_tree(self, shell: Child, pipes: frozenset[int]) -> ProcessTree:
        return ProcessTree(
            shell.pid,
            shell.tag,
            pipes=pipes,
            owns_orphans=self._owns_orphans,
            free_descriptors=self.tag_index.spare_descriptors,
        )

    def _owns_orphans(self) -> bool:
        """Whether an orphan that came to this process can only be of the one run that there is."""
        return self.own_process and len(self.shell_pids) == 1

    @property
    def has_pending_events(self) -> bool:
        """Whether somebody far away has something to tell us, though nobody waits for it."""
        return self.connection is not None and not self.connection.idle

    def stop_listening(self) -> None:
        if self.connection is not None:
            self.connection.stop_listening()

    def after_fork(self) -> None:
        """We are in a fork of our host: what is watched is watched by the parent, too."""
        self.loop.after_fork()
        if self.connection is not None:
            self.connection.after_fork()
            self.connection = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self.loop.close()
        self.spawner.close()
        self.tag_index.close()


_disowned: Final[list[LoopContext]] = []  # kept, since forgetting them would close their numbers
