"""Who carries which tag, looking at each process once.

Pids are issued in order, so whoever appeared since the last look has one of the numbers issued
since: for `echo` that is one number to ask about, not a walk over all of /proc. Two system
calls tell what we need, the soft RLIMIT_LOCKS and the session. When the numbers start again
from the bottom, or may have, everything is looked at anew.
"""

import os
from collections.abc import Callable
from typing import Final

from nacre import proc
from nacre.loop import now
from nacre.process.tag import Tag, put, read

# Past so many new numbers, listing /proc is cheaper than asking for each.
_MANY: Final = 2048
# In so many seconds the numbers may have gone all the way around.
_A_WHILE: Final = 1.0


class Census:
    def __init__(self) -> None:
        self._newest = proc.LastPid()
        self._last: int | None = None  # the newest number we have asked about
        self._looked = 0.0
        self._untagged = proc.soft_locks(os.getpid())  # what a child of ours has before its tag
        self._tagged: dict[int, list[int]] = {}  # a tag's own number → pids
        self._nested: dict[int, list[int]] = {}  # the outer number of a run inside ours → pids
        self._sessions: dict[int, list[int]] = {}  # session → pids that are not its leader

    def begin(self, shell: int | None, *, alone: bool) -> None:
        """A shell has started: whatever it starts has a later number. `alone`: no other runs, so
        what we know of before is of no use. None: one is about to, which has a number already."""
        if alone or self._last is None:
            self._last, self._looked = shell or self._newest.read(), now()
            self._forget()

    def spare_descriptors(self) -> None:
        """Make room for somebody who must look and has no descriptor left for it."""
        self._newest.close()

    def left_by(self, shell: int, tag: Tag | None) -> list[proc.Process]:
        """Living processes that a command started, the shell itself not counted.

        Call it while the shell is not yet collected: its number still means its session.
        """
        self._catch_up()
        if not self._sessions and not self._tagged:
            return []  # nobody has started anything since
        pids = set(self._sessions.pop(shell, ()))
        if tag is not None:
            pids.update(self._tagged.pop(tag.own, ()))
            pids.update(self._nested.pop(tag.as_outer, ()))
        pids -= {shell, os.getpid()}
        found = [process for pid in sorted(pids) if (process := proc.look(pid))]
        return [each for each in found if each.alive and not proc.is_thread(each.pid)]

    def tag_early_children(self, shell: int, tag: Tag, pipes: Callable[[], frozenset[int]]) -> None:
        """Tag what a shell has started before the shell itself could be tagged.

        Seldom anybody, but a busy machine can keep us from running for longer than bash takes to
        fork. They are in the shell's session, or have left it and still hold our pipe.
        """
        while fresh := self._catch_up():
            early = [pid for pid in fresh if self._is_early(pid, shell, pipes)]
            tagged = [pid for pid in early if put(pid, tag)]
            if not tagged:
                return
            self._tagged.setdefault(tag.own, []).extend(tagged)

    def _is_early(self, pid: int, shell: int, pipes: Callable[[], frozenset[int]]) -> bool:
        if pid == shell or proc.soft_locks(pid) != self._untagged:
            return False
        if pid in self._sessions.get(shell, ()):
            return True
        return not proc.descends(pid, os.getpid()) and proc.writes_to(pid, pipes())

    def close(self) -> None:
        self._newest.close()

    def _catch_up(self) -> list[int] | range:
        """Note whoever has appeared since the last time."""
        last, moment = self._newest.read(), now()
        late = moment - self._looked > _A_WHILE
        self._looked = moment
        if last is not None and last == self._last and not late:
            return []
        fresh = self._new(last, late=late)
        for pid in fresh:
            self._note(pid)
        self._last = last
        return fresh

    def _new(self, last: int | None, *, late: bool) -> list[int] | range:
        if last is None or self._last is None or last < self._last or late:
            self._forget()
            return _pids()
        if last - self._last > _MANY:
            return [pid for pid in _pids() if self._last < pid <= last]
        return range(self._last + 1, last + 1)

    def _forget(self) -> None:
        self._tagged.clear()
        self._nested.clear()
        self._sessions.clear()

    def _note(self, pid: int) -> None:
        try:
            session = os.getsid(pid)
        except OSError:
            return
        if session != pid:
            self._sessions.setdefault(session, []).append(pid)
        mark = read(proc.soft_locks(pid))
        if mark is not None:
            self._tagged.setdefault(mark.own, []).append(pid)
            if mark.outer:
                self._nested.setdefault(mark.outer, []).append(pid)


def _pids() -> list[int]:
    try:
        return proc.pids()
    except OSError:  # nothing can be seen: then nothing is said
        return []
