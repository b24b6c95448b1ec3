"""Index that finds the processes of a run by their run tag (a resource limit) or Unix session.

The kernel issues pids in ascending order, so a new process has a pid above the last scanned pid.
The tag index checks only new pids: after an `echo` command, one pid instead of all of /proc. The
tag index needs only two system calls for each process, which return its soft RLIMIT_LOCKS and its
session. When the kernel's pids have wrapped around, or may have done so, the index is rebuilt from
a full scan of /proc.
"""

import os
from collections.abc import Callable
from typing import Final

from nacre.eventloop import now
from nacre.process.run_tag import Tag, apply_tag, parse_tag
from nacre.procfs import processes

# number of new pids above which listing /proc is cheaper than checking each pid
_LIST_ABOVE: Final = 2048
# maximum seconds between two scans of the new pids; in a longer time, the kernel's pids may wrap
# around completely
_WRAP_SECONDS: Final = 1.0


class TagIndex:
    def __init__(self) -> None:
        self._last_pid = processes.LastPid()
        self._scanned_to: int | None = None  # newest pid that has been scanned
        self._scanned_at = 0.0
        # soft RLIMIT_LOCKS that a child inherits from this process and keeps until nacre sets a run
        # tag on the child
        self._untagged = processes.soft_locks(os.getpid())
        # maps the number of a run (field `own` of its run tag) to the pids of the run's processes
        self._tagged: dict[int, list[int]] = {}
        # maps the number of an outer run to the pids of all processes in its inner runs: runs that
        # a command of the outer run started
        self._nested: dict[int, list[int]] = {}
        # maps a Unix session id to the pids of the session's processes, without the session leader
        self._sessions: dict[int, list[int]] = {}

    def start(self, shell: int | None, *, alone: bool) -> None:
        """Prepare the tag index for a new shell, whose children will have later pids.

        If `alone` is true (no other run is running), the tag index forgets all older processes,
        because they belong to no running command. `shell` is the pid of the new shell, or None when
        a prewarmed shell, which has an older pid, is about to run the command.
        """
        if alone or self._scanned_to is None:
            self._scanned_to, self._scanned_at = shell or self._last_pid.read(), now()
            self._clear()

    def spare_descriptors(self) -> None:
        """Close the descriptors that the tag index keeps open, because a scan of /proc needs free
        descriptors."""
        self._last_pid.close()

    def find_leftovers(self, shell: int, tag: Tag | None) -> list[processes.Process]:
        """Return the living processes that a run started, without the shell itself.

        Call `find_leftovers` before the shell is reaped, because the shell's pid identifies its
        session only until then.
        """
        self._scan_new()
        if not self._sessions and not self._tagged:
            return []  # no new process has a run tag or belongs to the session of a shell
        pids = set(self._sessions.pop(shell, ()))
        if tag is not None:
            pids.update(self._tagged.pop(tag.own, ()))
            pids.update(self._nested.pop(tag.as_outer, ()))
        pids -= {shell, os.getpid()}
        found = [process for pid in sorted(pids) if (process := processes.read_process(pid))]
        return [each for each in found if each.alive and not processes.is_thread(each.pid)]

    def tag_early_children(self, shell: int, tag: Tag, pipes: Callable[[], frozenset[int]]) -> None:
        """Set the run tag on early children: processes that a shell started before nacre had set
        the run tag on the shell itself.

        A shell rarely starts a process before it is tagged, but on a busy machine, bash may fork
        before the kernel lets this process run again and tag the shell. An early child, started
        before its shell was tagged, is found by the shell's Unix session or by the run's output
        pipe that the child holds open.
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
        """Add the processes that have appeared since the last scan to the index; return their
        pids."""
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
    except OSError:  # /proc cannot be listed: return no pids
        return []
