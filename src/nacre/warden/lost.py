"""What is known of runs whose owner was killed: their end, if it can still be seen, or that they
are lost.

Their pipes broke with their owner, so what they print is gone; most end at their next line. A shell
that still lives is watched: since Linux 6.15 a descriptor of a process, opened while it lived,
tells its exit code also to strangers. Runs of another boot are lost, whatever has their numbers
now.
"""

import os
import time
from collections import deque
from contextlib import suppress
from typing import Final

from nacre import proc
from nacre.engine.epitaph import filled
from nacre.engine.ground import Ground
from nacre.events import Stream
from nacre.outcome import Ending, Lost, Survivor
from nacre.plan import MIB
from nacre.process import child
from nacre.store import journal, listing, owner
from nacre.store.home import home, replace
from nacre.store.journal import Ended, Stored
from nacre.store.reading import Run
from nacre.store.record import Files

_PAUSE: Final = 0.005
_TRIES: Final = 20
_COUNTED: Final = 16 * MIB  # of longer output the lines are not counted
_BROKEN: Final = "the process that read it was killed; what came after that is lost"


class Recovery:
    def __init__(self, ground: Ground, files: Files) -> None:
        self._loop = ground.loop
        self._files = files
        self._left: deque[Run] = deque()
        self._watched: set[int] = set()

    @property
    def busy(self) -> bool:
        return bool(self._left or self._watched)

    def begin(self) -> None:
        with suppress(OSError):
            found = listing.unfinished(None)
            self._left.extend(run for run in found if run.owner is None or not run.owner.lives)
        self._next()

    def drop(self) -> None:
        """Somebody else does it."""
        self._left.clear()
        while self._watched:
            pidfd = self._watched.pop()
            self._loop.forget(pidfd)
            os.close(pidfd)

    def _next(self) -> None:
        """One at a time: others want to be served meanwhile."""
        if not self._left:
            return
        run = self._left.popleft()
        if run.ended is not None:
            self._finish(run, run.ended)
        elif not self._still_runs(run):
            self._close(run, Lost(last_seen=run.seconds))
        if self._left:
            self._loop.after(_PAUSE, self._next)

    def _finish(self, run: Run, ended: Ended) -> None:
        """Its end was written down, and whoever did so was killed over the last step."""
        with suppress(OSError, IndexError):
            start = ended.output.marks[-1][0]
            fd = os.open(run.path(Stream.OUTPUT), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            try:
                if run.begun.epitaph is not None and os.fstat(fd).st_size == start:
                    os.write(fd, filled(run.begun.epitaph, ended.ending))
            finally:
                os.close(fd)
        with suppress(OSError):
            replace(f"{run.directory}/outcome", journal.encode(ended) + b"\n")
            self._into_journal(run, journal.encode(ended) + b"\n")

    def _into_journal(self, run: Run, line: bytes) -> None:
        path = journal.path_of(home(), run.begun.place, run.number)
        self._files.journal.append(path, line)

    def _still_runs(self, run: Run) -> bool:
        """Whether its shell lives, and we shall hear of its end."""
        shell, owned = run.begun.shell, run.owner
        if shell is None or owned is None or owned.boot != owner.boot():
            return False
        try:
            pidfd = os.pidfd_open(shell.pid)
        except ProcessLookupError:
            return False
        except OSError:  # no descriptor at this moment
            self._left.append(run)
            return True
        found = proc.look(shell.pid)
        if found is None or found.started != shell.started:
            os.close(pidfd)
            return False
        self._watched.add(pidfd)
        self._loop.watch(pidfd, lambda: self._seen(run, pidfd))
        return True

    def _seen(self, run: Run, pidfd: int) -> None:
        """It has ended. How is told by its zombie, or by the kernel once that is collected."""
        self._loop.forget(pidfd)
        self._ask(run, pidfd, _TRIES)

    def _ask(self, run: Run, pidfd: int, tries: int) -> None:
        if pidfd not in self._watched:
            return
        shell = run.begun.shell
        assert shell is not None
        status = child.status_of_stranger(pidfd, shell.pid, shell.started)
        if status is None and tries:
            self._loop.after(0.05, lambda: self._ask(run, pidfd, tries - 1))
            return
        os.close(pidfd)
        self._watched.discard(pidfd)
        self._close(run, status or Lost(last_seen=time.time() - run.begun.time))

    def _close(self, run: Run, ending: Ending) -> None:
        """Write down how it ended, in every place where somebody may look."""
        output = self._stored(run, Stream.OUTPUT, ending)
        errors = None
        if os.path.exists(run.path(Stream.ERRORS)):
            errors = self._stored(run, Stream.ERRORS, None)
        ended = Ended(
            run=run.number,
            time=time.time(),
            ending=ending,
            seconds=ending.last_seen if isinstance(ending, Lost) else time.time() - run.begun.time,
            output=output,
            errors=errors,
            left_running=_left(run),
        )
        line = journal.encode(ended) + b"\n"
        with suppress(OSError):
            replace(f"{run.directory}/outcome", line)
        with suppress(OSError):
            self._into_journal(run, line)

    def _stored(self, run: Run, stream: Stream, ending: Ending | None) -> Stored:
        """`ending`: to be told at the end of the file."""
        path, epitaph = run.path(stream), run.begun.epitaph
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return Stored(problem=_BROKEN)
        try:
            size = os.fstat(fd).st_size
            lines = _lines(fd) if size <= _COUNTED else 0
            marks: tuple[tuple[int, int], ...] = ()
            if epitaph is not None and ending is not None:
                words = filled(epitaph, ending)
                marks = ((size, size + os.write(fd, words)),)
        except OSError:
            return Stored(problem=_BROKEN)
        finally:
            os.close(fd)
        return Stored(size=size, lines=lines, problem=_BROKEN, marks=marks)


def _lines(fd: int) -> int:
    count, last = 0, b"\n"
    os.lseek(fd, 0, os.SEEK_SET)
    while block := os.read(fd, MIB):
        count += block.count(b"\n")
        last = block[-1:]
    return count + (last != b"\n")


def _left(run: Run) -> tuple[Survivor, ...]:
    """Who of it still lives, by its tag."""
    from nacre.process.tag import read
    from nacre.process.tree import Remains

    owned = run.owner
    mark = read(run.begun.tag)
    if mark is None or owned is None or owned.boot != owner.boot():
        return ()
    with suppress(OSError):
        return tuple(
            Survivor(pid=each.pid, started=each.started, command=proc.command_line(each.pid))
            for each in Remains(mark).members()
        )
    return ()
