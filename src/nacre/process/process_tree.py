"""Everything a command has started, wherever it went, and signals to exactly that.

A process belongs to the command when it carries the run's tag, is in its shell's session, has
a parent that belongs, or was seen to belong before. In a process of ours, which is the
subreaper, orphans come to us, so nothing is out of sight. When all that finds nobody any
more and yet somebody can still write to our pipe, it is whoever holds it, if it is younger
than the command and does not descend from our own host.

Signals go by identity: a pidfd is opened, the start time compared, then the signal sent. The
shell's own group is signalled as a group, because that also reaches children just being
forked; its number is safe as long as the shell has not been collected.
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

# A tree that forks while we look is looked at again, so many times at once.
_MAX_KILL_ROUNDS: Final = 16


class ProcessTree:
    """The processes of one command. Made while its shell is not yet collected."""

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
        self._owns_orphans = owns_orphans  # we are the subreaper, and this is the only command
        self._free_descriptors = free_descriptors  # makes room for a descriptor
        self._own_session = os.getsid(0)
        self._free_descriptors()
        root = processes.read_process(shell)
        self._started_after = root.started if root else 0
        self._last_members = [root] if root and root.alive else []
        self._seen: set[tuple[int, int]] = set()

    def members(self) -> list[Process]:
        """Who of the tree is alive now; the shell counts while it runs.

        Without a descriptor to look with, everybody is still there whom we saw last.
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
        """Signal every member once, as far as we are allowed to."""
        members = self.members()
        self._signal_group(number)
        for each in members:
            if each.group != self._shell:
                send_signal(each, number)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            # A stopped process acts on a signal only once it goes on.
            for each in members:
                if each.state in "Tt":
                    send_signal(each, signal.SIGCONT)

    def kill(self) -> list[Process]:
        """Kill every member, and those that they fork meanwhile; returns who is left."""
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
                break  # nobody new: the rest is dying
        return members

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._shell, number)
        except OSError:  # nobody is there, or nobody whom we may signal
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
        # An orphan of ours that shed its tag. Commands never share our session; helpers do.
        adopted = process.parent == os.getpid() and process.session != self._own_session
        return adopted and read_tag(locks) is None and self._owns_orphans()

    def _with_descendants(self, table: Table, members: list[Process]) -> list[Process]:
        """The members, with all that descend from them."""
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
        """Strangers who hold our pipe: the last way to find a process that shed every mark."""
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
    """Signal this very process, or nobody. False when it is there but not ours to signal."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    except OSError:  # no descriptor: somebody will come back to it
        return False
    try:
        # The pidfd pins whoever has the number now; only then is a comparison worth something.
        now = processes.read_process(process.pid)
        if now is not None and now.started == process.started:
            signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return True
    except OSError:  # not ours to signal, or no signal at all
        return False
    finally:
        os.close(pidfd)
    return True


def reap_orphans(known: Collection[int]) -> list[int]:
    """Let go of the orphans that came to us as the subreaper and have died; returns who lives.

    Only for processes of our own: it waits for any child that is not in `known`.
    """
    alive = []
    try:
        children = processes.list_own_children()
    except OSError:  # no descriptor to look with; somebody will come back to it
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
    """What is left of a run whose shell is gone, or whose owner is: known by its tag alone."""

    def __init__(self, tag: Tag) -> None:
        self._tag = tag

    def members(self) -> list[Process]:
        """Raises OSError when we cannot look."""
        return [
            each
            for each in processes.read_all_processes().values()
            if each.alive
            and each.pid != os.getpid()
            and self._tag.includes(processes.soft_locks(each.pid))
        ]

    def signal(self, number: int) -> int:
        """Signal each of them, by identity; returns how many there were."""
        members = self.members()
        for each in members:
            send_signal(each, number)
            if each.state in "Tt" and number not in (signal.SIGKILL, signal.SIGSTOP):
                send_signal(each, signal.SIGCONT)
        return len(members)
