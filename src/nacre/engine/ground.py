"""What the runs of one loop stand on: the loop, the spawner, and what they share."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from nacre.cancel import CancelToken
from nacre.engine import leftovers
from nacre.engine.leftovers import Leftover
from nacre.engine.slots import Slots
from nacre.loop import Loop
from nacre.plan import Plan
from nacre.process.census import Census
from nacre.process.child import Spawner
from nacre.process.pipes import Growth

if TYPE_CHECKING:  # who has no sessions need not load them
    from nacre.engine.sessions import Sessions


class Line(Protocol):
    """A connection to somebody else who runs things, and reports to our loop."""

    @property
    def idle(self) -> bool:
        """Whether nothing is to be heard from it."""
        ...

    def stop_listening(self) -> None: ...

    def forked(self) -> None:
        """Let go of it, and change nothing for the parent."""
        ...

    def close(self) -> None: ...


Leave = Callable[[Leftover], None]  # what becomes of the pipes of an ended command


class Rememberer:
    """The sessions of an engine, made when the first is wanted."""

    made: "Sessions | None" = None

    def __init__(
        self, run: Callable[[Plan, CancelToken], None] | None = None, *, keeps: bool = False
    ) -> None:
        """`run` runs something of our own to its end; without, no set-up is read."""
        self._run = run or _not_at_all
        self._keeps = keeps
        self._lock = threading.Lock()
        # Whoever looks for orphans must not take one for it that is just being born.
        self.births = threading.Lock()

    def __call__(self) -> "Sessions":
        made = self.made
        if made is not None:
            return made
        from nacre.engine.sessions import Sessions

        with self._lock:
            self.made = self.made or Sessions(self._run, self.births, keeps=self._keeps)
            return self.made

    @property
    def pids(self) -> set[int]:
        """Of shells that wait."""
        return set() if self.made is None else self.made.pids

    def forked(self) -> None:
        self._lock, self.births = threading.Lock(), threading.Lock()
        made, self.made = self.made, None
        if made is not None:
            made.forked()

    def close(self) -> None:
        made, self.made = self.made, None
        if made is not None:
            made.close()


def _not_at_all(plan: Plan, cancel: CancelToken) -> None:
    del plan, cancel


class Ground:
    """What the runs of one loop stand on."""

    line: Line | None = None

    def __init__(
        self,
        slots: Slots,
        *,
        ours: bool,
        leave: Leave = leftovers.shelve,
        sessions: Rememberer | None = None,
    ) -> None:
        self.leave = leave
        self.sessions = sessions or Rememberer()
        self.spawner = Spawner(ours=ours)
        self.loop = Loop()
        self.census = Census()
        self.growth = Growth()
        self.slots = slots
        self.ours = ours  # this process is nacre's own, the subreaper, and has one loop
        self.shells: set[int] = set()  # not yet collected

    def intact(self) -> bool:
        """Whether our descriptors are still ours. A host may have closed whatever was open; then
        the numbers are somebody else's, and we are never touched again."""
        if self.loop.intact() and self.spawner.intact():
            return True
        self.spawner.disown()
        _strangers.append(self)
        return False

    @property
    def listens(self) -> bool:
        """Whether somebody far away has something to tell us, though nobody waits for it."""
        return self.line is not None and not self.line.idle

    def stop_listening(self) -> None:
        if self.line is not None:
            self.line.stop_listening()

    def forked(self) -> None:
        """We are in a fork of our host: what is watched is watched by the parent, too."""
        self.loop.forked()
        if self.line is not None:
            self.line.forked()
            self.line = None

    def close(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None
        self.loop.close()
        self.spawner.close()
        self.census.close()


_strangers: Final[list[Ground]] = []  # kept, since forgetting them would close their numbers
