"""Process tree of a run: finds every process that the run started, and signals exactly these.

A process belongs to the run if it has the run tag, is in the shell's session, descends from a
member, or was a member in an earlier scan. nacre's own processes are subreapers: the kernel
reparents orphans to them, so no orphan gets lost. If no member is found, the processes that hold
the write end of the run's output pipe count as members. A pipe holder that is older than the run's
shell or descends from this process does not count.

A signal is sent by identity: open a pidfd, compare the start time, then send the signal. The
shell's process group is signalled as a group, because this also reaches children that are just
being forked. The kernel cannot reuse the group's number before the shell is reaped.
"""

import os
import signal
from collections.abc import Callable, Collection
from typing import Final

from nacre.process.run_tag import Tag
from nacre.process.run_tag import parse_tag as read_tag
from nacre.procfs import processes
from nacre.procfs.processes import Process

Table = dict[int, Process]

# Maximum number of scans in one call of `kill`. A tree that forks during a scan is scanned again.
_MAX_KILL_ROUNDS: Final = 16


class ProcessTree:
    """Process tree of one run. The caller creates this object before the shell is reaped."""

    def __init__(
        self,
        shell: int,
        tag: Tag | None,
        *,
        pipes: frozenset[int],
        owns_orphans: Callable[[], bool],
        free_descriptors: Callable[[], None],
    ) -> None:
        self._shell = shell
        self._tag = tag
        self._pipes = pipes
        # callback that returns whether this process is the subreaper and has no other run
        self._owns_orphans = owns_orphans
        self._free_descriptors = free_descriptors  # callback that closes cached descriptors
        self._own_session = os.getsid(0)
        self._free_descriptors()
        root = processes.read_process(shell)
        self._started_after = root.started if root else 0
        self._last_members = [root] if root and root.alive else []
        self._seen: set[tuple[int, int]] = set()

    def members(self) -> list[Process]:
        """Return the living processes of the tree, including the shell while it runs.

        When no descriptor is free for reading /proc, return the result of the previous scan.
        """
        try:
            self._last_members = self._scan()
        except OSError:
            self._free_descriptors()
        return self._last_members

    def _scan(self) -> list[Process]:
        table = processes.read_all_processes()
        table.pop(os.getpid(), None)
        found = self._with_descendants(table, self._find_tagged(table))
        alive = [each for each in found if each.alive] or self._writers(table)
        self._seen.update((each.pid, each.started) for each in alive)
        return alive

    def signal(self, number: int) -> None:
        """Signal every member once, as far as this process has the permission."""
        members = self.members()
        self._signal_group(number)
        for each in members:
            if each.group != self._shell:
                send_signal(each, number)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            # A stopped process handles a signal only after SIGCONT.
            for each in members:
                if each.state in "Tt":
                    send_signal(each, signal.SIGCONT)

    def kill(self) -> list[Process]:
        """Kill every member and every process that members fork meanwhile; return the survivors."""
        members = self.members()
        for _ in range(_MAX_KILL_ROUNDS):
            if not members:
                break
            self._signal_group(signal.SIGKILL)
            for each in members:
                send_signal(each, signal.SIGKILL)
            before = {(each.pid, each.started) for each in members}
            members = self.members()
            if {(each.pid, each.started) for each in members} <= before:
                break  # no new members; the remaining members are dying
        return members

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._shell, number)
        except OSError:  # the group is empty, or this process may not signal it
            return

    def _find_tagged(self, table: Table) -> list[Process]:
        return [each for each in table.values() if self._is_member(each)]

    def _is_member(self, process: Process) -> bool:
        if process.started < self._started_after:
            return False
        if process.session == self._shell or (process.pid, process.started) in self._seen:
            return True
        locks = processes.soft_locks(process.pid)
        if self._tag is not None and self._tag.includes(locks):
            return True
        # An orphan that this process adopted and that has lost its tag. A command is never in the
        # session of this process, but helper processes are.
        adopted = process.parent == os.getpid() and process.session != self._own_session
        return adopted and read_tag(locks) is None and self._owns_orphans()

    def _with_descendants(self, table: Table, members: list[Process]) -> list[Process]:
        """Return the members and all their descendants."""
        children: dict[int, list[Process]] = {}
        for each in table.values():
            children.setdefault(each.parent, []).append(each)
        found = {each.pid: each for each in members}
        fresh = members
        while fresh:
            born = [child for each in fresh for child in children.get(each.pid, ())]
            fresh = [child for child in born if child.pid not in found]
            found.update((child.pid, child) for child in fresh)
        return list(found.values())

    def _writers(self, table: Table) -> list[Process]:
        """Return the processes outside the tree that hold the write end of the run's pipe.

        This search is the last way to find a process that has lost its tag, session and parent.
        """
        own = {each.pid for each in self._with_descendants(table, _children_of(os.getpid(), table))}
        young = (
            each
            for each in table.values()
            if each.alive and each.started >= self._started_after and each.pid not in own
        )
        return [each for each in young if processes.writes_to_pipe(each.pid, self._pipes)]


def _children_of(parent: int, table: Table) -> list[Process]:
    return [each for each in table.values() if each.parent == parent]


def send_signal(process: Process, number: int) -> bool:
    """Signal exactly this process, identified by its pid and start time.

    Return False when the process may still exist but could not be signalled.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    except OSError:  # no free descriptor: a later scan retries
        return False
    try:
        # The pidfd pins the process that has the pid now. Start times can be compared reliably
        # only after the pidfd is open.
        now = processes.read_process(process.pid)
        if now is not None and now.started == process.started:
            signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return True
    except OSError:  # no permission, or an invalid signal number
        return False
    finally:
        os.close(pidfd)
    return True


def reap_orphans(known: Collection[int]) -> list[int]:
    """Reap the dead orphans that this subreaper has adopted; return the pids of the living ones.

    Only nacre's own processes may call this function: it reaps any child that is not in `known`.
    """
    alive = []
    try:
        children = processes.list_own_children()
    except OSError:  # no free descriptor for reading /proc: a later call retries
        return []
    for pid in children:
        if pid in known:
            continue
        try:
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                alive.append(pid)
        except ChildProcessError:
            continue
    return alive


class TaggedProcesses:
    """Remaining processes of a run whose shell or owner has exited, found by the run tag alone."""

    def __init__(self, tag: Tag) -> None:
        self._tag = tag

    def members(self) -> list[Process]:
        """Return the living processes with the run tag. Raises OSError if /proc is unreadable."""
        return [
            each
            for each in processes.read_all_processes().values()
            if each.alive
            and each.pid != os.getpid()
            and self._tag.includes(processes.soft_locks(each.pid))
        ]

    def signal(self, number: int) -> int:
        """Signal every process with the run tag, by identity; return the number of processes."""
        members = self.members()
        for each in members:
            send_signal(each, number)
            if each.state in "Tt" and number not in (signal.SIGKILL, signal.SIGSTOP):
                send_signal(each, signal.SIGCONT)
        return len(members)
