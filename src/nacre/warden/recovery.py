"""Recovery of runs whose owner process was killed: find out and record how each run ended.

When the process that owns a run is killed, the run's pipes break, so its further output is lost. A
run with broken pipes usually ends when it prints its next line. If the shell of an orphaned run
still lives, the warden watches the shell for its exit. Since Linux 6.15, a pidfd that was opened
while the process lived returns the exit code to any process, not only to the parent. A run whose
exit status cannot be found out is recorded as lost. A run from before the last reboot is lost, even
if another process now has the pid of its shell.
"""

import os
import time
from collections import deque
from contextlib import suppress
from typing import Final

from nacre.engine.loop_context import LoopContext
from nacre.model.events import Stream
from nacre.model.outcome import Ending, Lost, Survivor
from nacre.model.plan import MIB
from nacre.process import spawner
from nacre.procfs import processes
from nacre.store import journal, listing, run_owner
from nacre.store.journal import EndEntry, StoredStream
from nacre.store.run_record import RunFiles
from nacre.store.state_dir import state_dir, write_atomically
from nacre.store.stored_run import StoredRun

_PAUSE: Final = 0.005
_TRIES: Final = 20
# Size in bytes above which the lines of an output file are not counted.
_MAX_COUNTED: Final = 16 * MIB
_BROKEN_PIPE: Final = "the process that read the output was killed; later output is lost"


class Recovery:
    def __init__(self, context: LoopContext, files: RunFiles) -> None:
        self._loop = context.loop
        self._files = files
        self._remaining: deque[StoredRun] = deque()
        self._watched: set[int] = set()

    @property
    def busy(self) -> bool:
        return bool(self._remaining or self._watched)

    def start(self) -> None:
        with suppress(OSError):
            found = listing.list_without_outcome(None)
            self._remaining.extend(
                run for run in found if run.owner is None or not run.owner.is_alive
            )
        self._recover_next()

    def drop(self) -> None:
        """Stop recovering runs, because another warden recovers them from now on."""
        self._remaining.clear()
        while self._watched:
            pidfd = self._watched.pop()
            self._loop.unwatch(pidfd)
            os.close(pidfd)

    def _recover_next(self) -> None:
        """Recover one run and schedule the recovery of the next, so that the warden serves its
        clients in between."""
        if not self._remaining:
            return
        run = self._remaining.popleft()
        if run.end_entry is not None:
            self._complete_end(run, run.end_entry)
        elif not self._watch_if_alive(run):
            self._write_end(run, Lost(last_seen=run.seconds))
        if self._remaining:
            self._loop.call_later(_PAUSE, self._recover_next)

    def _complete_end(self, run: StoredRun, ended: EndEntry) -> None:
        """Write the file `outcome` of a run whose owner process was killed while it recorded the
        run's end. `ended` is the end entry that the owner process had written to the journal or to
        the temporary file `outcome.draft`."""
        with suppress(OSError, IndexError):
            start = ended.output.hidden[-1][0]
            fd = os.open(run.path(Stream.OUTPUT), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            try:
                if run.start_entry.completion_line is not None and os.fstat(fd).st_size == start:
                    os.write(fd, run.start_entry.completion_line.text_of(ended.ending).encode())
            finally:
                os.close(fd)
        with suppress(OSError):
            write_atomically(f"{run.directory}/outcome", journal.encode_entry(ended) + b"\n")
            self._append_to_journal(run, journal.encode_entry(ended) + b"\n")

    def _append_to_journal(self, run: StoredRun, line: bytes) -> None:
        path = journal.journal_path(state_dir(), run.start_entry.workspace_key, run.number)
        self._files.journal.append(path, line)

    def _watch_if_alive(self, run: StoredRun) -> bool:
        """Watch the run's shell for its exit; return False if the shell no longer runs."""
        shell, owned = run.start_entry.shell, run.owner
        if shell is None or owned is None or owned.boot != run_owner.boot_id():
            return False
        try:
            pidfd = os.pidfd_open(shell.pid)
        except ProcessLookupError:
            return False
        except OSError:  # no free descriptor at this moment: recover the run later
            self._remaining.append(run)
            return True
        found = processes.read_process(shell.pid)
        if found is None or found.started != shell.started:
            os.close(pidfd)
            return False
        self._watched.add(pidfd)
        self._loop.watch(pidfd, lambda: self._on_exit(run, pidfd))
        return True

    def _on_exit(self, run: StoredRun, pidfd: int) -> None:
        """Read the exit status of a run's shell from the zombie process or, once the zombie is
        reaped, from the shell's pidfd."""
        self._loop.unwatch(pidfd)
        self._read_status(run, pidfd, _TRIES)

    def _read_status(self, run: StoredRun, pidfd: int, tries: int) -> None:
        if pidfd not in self._watched:
            return
        shell = run.start_entry.shell
        assert shell is not None
        status = spawner.foreign_exit_status(pidfd, shell.pid, shell.started)
        if status is None and tries:
            self._loop.call_later(0.05, lambda: self._read_status(run, pidfd, tries - 1))
            return
        os.close(pidfd)
        self._watched.discard(pidfd)
        self._write_end(run, status or Lost(last_seen=time.time() - run.start_entry.time))

    def _write_end(self, run: StoredRun, ending: Ending) -> None:
        """Record how the run ended, in its file `outcome` and in the journal."""
        output = self._stored_stream(run, Stream.OUTPUT, ending)
        errors = None
        if os.path.exists(run.path(Stream.ERRORS)):
            errors = self._stored_stream(run, Stream.ERRORS, None)
        ended = EndEntry(
            run=run.number,
            time=time.time(),
            ending=ending,
            seconds=ending.last_seen
            if isinstance(ending, Lost)
            else time.time() - run.start_entry.time,
            output=output,
            errors=errors,
            left_running=_find_leftovers(run),
        )
        line = journal.encode_entry(ended) + b"\n"
        with suppress(OSError):
            write_atomically(f"{run.directory}/outcome", line)
        with suppress(OSError):
            self._append_to_journal(run, line)

    def _stored_stream(self, run: StoredRun, stream: Stream, ending: Ending | None) -> StoredStream:
        """Return the size and line count of an output file. If `ending` is given, append the
        completion line, in which nacre says how the run ended, to the output file."""
        path, line = run.path(stream), run.start_entry.completion_line
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return StoredStream(problem=_BROKEN_PIPE)
        try:
            size = os.fstat(fd).st_size
            lines = _count_lines(fd) if size <= _MAX_COUNTED else 0
            marks: tuple[tuple[int, int], ...] = ()
            if line is not None and ending is not None:
                words = line.text_of(ending).encode()
                marks = ((size, size + os.write(fd, words)),)
        except OSError:
            return StoredStream(problem=_BROKEN_PIPE)
        finally:
            os.close(fd)
        return StoredStream(size=size, lines=lines, problem=_BROKEN_PIPE, hidden=marks)


def _count_lines(fd: int) -> int:
    count, last = 0, b"\n"
    os.lseek(fd, 0, os.SEEK_SET)
    while block := os.read(fd, MIB):
        count += block.count(b"\n")
        last = block[-1:]
    return count + (last != b"\n")


def _find_leftovers(run: StoredRun) -> tuple[Survivor, ...]:
    """Return the live processes of a run, which are recognized by the run tag (a resource-limit
    value)."""
    from nacre.process.process_tree import TaggedProcesses
    from nacre.process.run_tag import parse_tag

    owned = run.owner
    tag = parse_tag(run.start_entry.tag)
    if tag is None or owned is None or owned.boot != run_owner.boot_id():
        return ()
    with suppress(OSError):
        return tuple(
            Survivor(pid=each.pid, started=each.started, command=processes.command_line(each.pid))
            for each in TaggedProcesses(tag).members()
        )
    return ()
