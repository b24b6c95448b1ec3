"""Finding the processes that a shell left running when it exited.

    start -> list the processes -> (timer: look again) -> describe them -> on_found

The search must not report the forked copy of the shell that saves the session state, so the search
waits for a limited time until this copy has started to save the state. A leftover process inside
execve(2) has no arguments to show yet, so the search waits up to `_MAX_EXEC` seconds until the
process has arguments.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

from nacre.engine.loop_context import LoopContext
from nacre.eventloop import Callback, Timer, now
from nacre.model.outcome import Survivor
from nacre.process.process_tree import ProcessTree, reap_orphans
from nacre.process.spawner import Child
from nacre.procfs import ports, processes
from nacre.procfs.processes import Process

if TYPE_CHECKING:
    from nacre.sessions.lease import SessionLease

_POLL: Final = 0.001  # poll interval in seconds for processes that outlive their run's shell
# Maximum seconds to wait until a process has completed execve(2), so that its arguments are known.
_MAX_EXEC: Final = 0.2


class LeftoverSearch:
    def __init__(
        self,
        context: LoopContext,
        lease: "SessionLease | None",
        call_later: Callable[[float, Callback], Timer],
        on_found: Callable[[tuple[Survivor, ...]], None],
    ) -> None:
        self._context = context
        self._lease = lease
        self._call_later = call_later
        self._on_found = on_found

    def start(
        self,
        shell: Child,
        status: int | None,
        tree: ProcessTree | None,
        new_tree: Callable[[], ProcessTree],
    ) -> None:
        """Find the processes that the exited shell left running, and pass them to the callback
        `on_found`. `tree` is the run's process tree, or None if the tree is not built yet;
        `new_tree` returns the tree and builds it if needed."""
        context = self._context
        with context.sessions.spawn_lock if context.own_process else nullcontext():
            if tree is None and not (context.own_process and self._has_orphans()):
                left = context.tag_index.find_leftovers(shell.pid, shell.tag)
            else:
                left = new_tree().members()
        if self._lease is None:
            self.describe(left)
        else:
            self._end_lease(self._lease, left, status, now())

    def _has_orphans(self) -> bool:
        """Return whether this process, the subreaper, has adopted orphans that are still alive."""
        orphans = reap_orphans(self._context.shell_pids | self._context.sessions.pids)
        if self._lease is not None:
            orphans = [pid for pid in orphans if not self._lease.is_saver(pid)]
        return bool(orphans)

    def _end_lease(
        self, lease: "SessionLease", left: list[Process], status: int | None, since: float
    ) -> None:
        if lease.may_save_soon(left, now() - since):
            self._call_later(_POLL, partial(self._end_lease, lease, left, status, since))
            return
        lease.end(left, status)
        self.describe(lease.without_savers(left))

    def describe(self, left: list[Process], since: float | None = None) -> None:
        """Describe the processes in `left`, which have outlived the run's shell, and pass the
        descriptions to the callback `on_found`. If a leftover process is still inside execve(2), so
        that its arguments are unknown, wait for it at most `_MAX_EXEC` seconds."""
        since = now() if since is None else since
        if are_starting(left, now() - since):
            self._call_later(_POLL, partial(self.describe, left, since))
        else:
            self._on_found(name_processes(left, self._lease) if left else ())


def are_starting(members: list[Process], seconds: float) -> bool:
    """Return whether one of the processes in `members` is inside execve(2) and has no arguments
    yet; return False if the caller has already waited for `_MAX_EXEC` seconds. `seconds` is the
    time that the caller has already waited for processes inside execve(2)."""
    return seconds < _MAX_EXEC and any(processes.is_starting(each.pid) for each in members)


def describe_processes(members: Iterable[Process]) -> tuple[Survivor, ...]:
    found = list(members)
    if not found:
        return ()
    # Lazy import: most commands leave no process running.
    from nacre.shell_state.pipeline_report import without_reports

    listens = ports.find_ports(each.pid for each in found)
    return tuple(
        Survivor(
            pid=each.pid,
            started=each.started,
            command=without_reports(processes.command_line(each.pid)),
            ports=listens[each.pid],
        )
        for each in found
    )


def name_processes(members: list[Process], lease: "SessionLease | None") -> tuple[Survivor, ...]:
    """Describe processes; a forked copy of a prewarmed shell is described by the user's command
    that it runs."""
    found = describe_processes(members)
    return found if lease is None else lease.rename_prewarmed(found)
