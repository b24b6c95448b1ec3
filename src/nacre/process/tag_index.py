"""Who carries which tag, looking at each process once.

Pids are issued in order, so whoever appeared since the last look has one of the numbers issued
since: for `echo` that is one number to ask about, not a walk over all of /proc. Two system
calls tell what we need, the soft RLIMIT_LOCKS and the session. When the numbers start again
from the bottom, or may have, everything is looked at anew.
"""

import os
from collections.abc import Callable
from typing import Final

from nacre.eventloop import now
from nacre.process.run_tag import Tag, apply_tag, parse_tag
from nacre.procfs import processes

# Past so many new numbers, listing /proc is cheaper than asking for each.
_LIST_ABOVE: Final = 2048
# In so many seconds the numbers may have gone all the way around.
_WRAP_SECONDS: Final = 1.0


class TagIndex:
    def __init__(self) -> None:
        self._last_pid = processes.LastPid()
        self._scanned_to: int | None = None  # the newest number we have asked about
        self._scanned_at = 0.0
        self._untagged = processes.soft_locks(
            os.getpid()
        )  # what a child of ours has before its tag
        self._tagged: dict[int, list[int]] = {}  # a tag's own number → pids
        self._nested: dict[int, list[int]] = {}  # the outer number of a run inside ours → pids
        self._sessions: dict[int, list[int]] = {}  # session → pids that are not its leader

    def start(self, shell: int | None, *, alone: bool) -> None:
        """A shell has started: whatever it starts has a later number. `alone`: no other runs, so
        what we know of before is of no use. None: one is about to, which has a number already."""
        if alone or self._scanned_to is None:
            self._scanned_to, self._scanned_at = shell or self._last_pid.read(), now()
            self._clear()

    def spare_descriptors(self) -> None:
        """Make room for somebody who must look and has no descriptor left for it."""
        self._last_pid.close()

    def find_leftovers(self, shell: int, tag: Tag | None) -> list[processes.Process]:
        """Living processes that a command started, the shell itself not counted.

        Call it while the shell is not yet collected: its number still means its session.
        """
        self._scan_new()
        if not self._sessions and not self._tagged:
            return []  # nobody has started anything since
        pids = set(self._sessions.pop(shell, ()))
        if tag is not None:
            pids.update(self._tagged.pop(tag.own, ()))
            pids.update(self._nested.pop(tag.as_outer, ()))
        pids -= {shell, os.getpid()}
        found = [process for pid in sorted(pids) if (process := processes.read_process(pid))]
        return [each for each in found if each.alive and not processes.is_thread(each.pid)]

    def tag_early_children(self, shell: int, tag: Tag, pipes: Callable[[], frozenset[int]]) -> None:
        """Tag what a shell has started before the shell itself could be tagged.

        Seldom anybody, but a busy machine can keep us from running for longer than bash takes to
        fork. They are in the shell's session, or have left it and still hold our pipe.
        """
        while fresh := self._scan_new():
            early = [pid for pid in fresh if self._is_early(pid, shell, pipes)]
            tagged = [pid for pid in early if apply_tag(pid, tag)]
            if not tagged:
                return
            self._tagged.setdefault(tag.own, []).extend(tagged)

    def _is_early(self, pid: int, shell: int, pipes: Callable[[], frozenset[int]]) -> bool:
        if pid == shell or processes.soft_locks(pid) != self._untagged:
            return False
        if pid in self._sessions.get(shell, ()):
            return True
        return not processes.is_descendant(pid, os.getpid()) and processes.writes_to_pipe(
            pid, pipes()
        )

    def close(self) -> None:
        self._last_pid.close()

    def _scan_new(self) -> list[int] | range:
        """Note whoever has appeared since the last time."""
        last, moment = self._last_pid.read(), now()
        late = moment - self._scanned_at > _WRAP_SECONDS
        self._scanned_at = moment
        if last is not None and last == self._scanned_to and not late:
            return []
        fresh = self._new_pids(last, late=late)
        for pid in fresh:
            self._add(pid)
        self._scanned_to = last
        return fresh

    def _new_pids(self, last: int | None, *, late: bool) -> list[int] | range:
        if last is None or self._scanned_to is None or last < self._scanned_to or late:
            self._clear()
            return _pids()
        if last - self._scanned_to > _LIST_ABOVE:
            return [pid for pid in _pids() if self._scanned_to < pid <= last]
        return range(self._scanned_to + 1, last + 1)

    def _clear(self) -> None:
        self._tagged.clear()
        self._nested.clear()
        self._sessions.clear()

    def _add(self, pid: int) -> None:
        try:
            session = os.getsid(pid)
        except OSError:
            return
        if session != pid:
            self._sessions.setdefault(session, []).append(pid)
        tag = parse_tag(processes.soft_locks(pid))
        if tag is not None:
            self._tagged.setdefault(tag.own, []).append(pid)
            if tag.outer:
                self._nested.setdefault(tag.outer, []).append(pid)


def _pids() -> list[int]:
    try:
        return processes.list_pids()
    except OSError:  # nothing can be seen: then nothing is said
        return []
