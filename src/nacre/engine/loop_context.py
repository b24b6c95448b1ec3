"""Objects that all runs of one event loop share: the loop, the spawner, the queue, the sessions."""

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

if TYPE_CHECKING:  # an engine without sessions does not load the session manager
    from nacre.sessions.manager import SessionManager


class Connection(Protocol):
    """Connection to another process (the warden, nacre's daemon) that executes runs and reports
    their events to this event loop."""

    @property
    def idle(self) -> bool:
        """Return whether neither a response nor an event is expected from the connection."""
        ...

    def stop_listening(self) -> None: ...

    def after_fork(self) -> None:
        """Drop the connection in a forked child without any effect on the parent process, which
        still uses the connection."""
        ...

    def close(self) -> None: ...


# Callback that takes over the open pipes of an ended run.
OnLeftover = Callable[[LeftoverPipes], None]


class LazySessions:
    """Session manager of an engine, created at first use."""

    def __init__(
        self, run: Callable[[Plan, CancelToken], None] | None = None, *, prewarm: bool = False
    ) -> None:
        """The session manager reads the user's shell startup files with the function `run`, which
        executes a command to its end; if `run` is None, the startup files are not read."""
        self.manager: SessionManager | None = None
        self._run_plan = run or _run_nothing
        self._prewarm = prewarm
        self._lock = threading.Lock()
        # `spawn_lock` is held while a prewarmed shell is spawned, so that a search for orphans does
        # not mistake the new shell for an orphan.
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
        """Process ids of the prewarmed shells, which wait for a command."""
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
    """Objects that all runs of one event loop share."""

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
        # Whether this process belongs to nacre, is the subreaper, and has only one event loop.
        self.own_process = own_process
        self.shell_pids: set[int] = set()  # process ids of the runs' shells that are not yet reaped

    def intact(self) -> bool:
        """Return whether the event loop and the spawner still own their descriptors.

        A host program may have closed all open descriptors of the process, so that nacre's
        descriptor numbers now belong to other files. A `LoopContext` that has lost its descriptors
        is never used again.
        """
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
        """Return whether this process adopts orphans and has only one live run, so that all adopted
        orphans belong to this run."""
        return self.own_process and len(self.shell_pids) == 1

    @property
    def has_pending_events(self) -> bool:
        """Return whether the warden (nacre's daemon) may still send events, even if no operation
        waits for them."""
        return self.connection is not None and not self.connection.idle

    def stop_listening(self) -> None:
        if self.connection is not None:
            self.connection.stop_listening()

    def after_fork(self) -> None:
        """Replace the event loop's lock and drop the connection to the warden (nacre's daemon) in a
        forked child, without any effect on the parent process."""
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


# Objects of the class `LoopContext` whose descriptors a host program has closed; nacre keeps these
# objects forever, because freeing one would close descriptor numbers that may now belong to other
# files.
_disowned: Final[list[LoopContext]] = []
