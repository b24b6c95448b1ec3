"""Process tree of a run: finds every process that the run started, and signals only these
processes.

A process is a member of a run's process tree if it has the run tag, is in the shell's session,
descends from a member, or was a member in an earlier scan. Each process of nacre itself is a
subreaper: the kernel reparents orphans of its commands to it, so no orphan gets lost. If a scan of
/proc finds no member of the run's process tree, the scan returns the processes that hold the run's
output pipe open for writing. A process that is older than the run's shell, or descends from this
process, does not belong to the run just because it holds the run's output pipe open.

A signal is sent to a process by identity: open a pidfd, compare the start time, then send the
signal. The shell's process group is signalled as a group, because a signal to the group also
reaches children that are just being forked. The kernel cannot reuse the number of the shell's
process group before the shell is reaped.
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

# Maximum number of scans in one call of `kill`, which scans a process tree again if the tree forks
# during a scan.
_MAX_KILL_ROUNDS: Final = 16


class ProcessTree:
    """Process tree (all processes) of one run; the object must be created before nacre reaps the
    run's shell."""

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
        # callback that returns whether all orphans adopted by this process belong to this run
        self._owns_orphans = owns_orphans
        # callback that closes cached descriptors, so that a scan of /proc finds free ones
        self._free_descriptors = free_descriptors
        self._own_session = os.getsid(0)
        self._free_descriptors()
        root = processes.read_process(shell)
        self._started_after = root.started if root else 0
        self._last_members = [root] if root and root.alive else []
        self._seen: set[tuple[int, int]] = set()

    def members(self) -> list[Process]:
        """Return the living processes of the run's process tree, including the shell while it runs.

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
        """Send a signal once to every process of the run that this process may signal."""
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
        """Kill every process of the run, including processes that are forked during the killing;
        return the processes that are still alive."""
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
                break  # no new processes in the tree; the remaining ones are dying
        return members

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._shell, number)
        except OSError:  # the process group is empty, or this process may not signal it
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
        # An orphan that this process has adopted and that has lost its run tag counts as a process
        # of this run if this run is the only live one. A child in the session of this process is a
        # helper process, because a command is never in that session.
        adopted = process.parent == os.getpid() and process.session != self._own_session
        return adopted and read_tag(locks) is None and self._owns_orphans()

    def _with_descendants(self, table: Table, members: list[Process]) -> list[Process]:
        """Return the processes in `members` and all their descendants."""
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
        """Return the processes that hold the write end of the run's output pipe, except descendants
        of this process.

        A process that has lost the tag, session and parent of its run can be found only through the
        run's output pipe, if the process still holds the pipe open.
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
    except OSError:  # no free descriptor for a pidfd: a later scan retries
        return False
    try:
        # Open the pidfd before comparing the process's start time with the recorded one, because an
        # open pidfd always refers to the same process.
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
    """Reap the dead orphans that this subreaper has adopted; return the pids of the living orphans.

    `reap_orphans` reaps every child of this process whose pid is not in `known`, so a host program,
    which may have other children, must not call it.
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
    """Processes of a run, found by the run tag alone, for example after the run's shell or the
    process that executed the run has exited."""

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
        """Signal every process that has the run tag; return the number of these processes."""
        members = self.members()
        for each in members:
            send_signal(each, number)
            if each.state in "Tt" and number not in (signal.SIGKILL, signal.SIGSTOP):
                send_signal(each, signal.SIGCONT)
        return len(members)
