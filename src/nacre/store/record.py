"""What is remembered of one run, by whoever runs it.

Most runs are two lines in the journal. One whose output is too long for that has a directory,
`runs/rN`, with `plan`, `output` (and `errors`) and `outcome`; it is made when the output overflows
memory, or else at the end. Whatever goes wrong here never hurts the command.
"""

import fcntl
import os
import time
from contextlib import suppress
from typing import Final

from nacre.events import Stream
from nacre.outcome import Capture, Outcome
from nacre.store import journal
from nacre.store.appending import Appending
from nacre.store.home import private_directory
from nacre.store.journal import Begun, Ended, Stored

# So much rides in the journal.
SMALL: Final = 16 * 1024


class Record:
    """`name` is what the run is called; one that could not be written down is not a number."""

    def __init__(self, name: str, begun: Begun, home: str, line: Appending, path: str) -> None:
        self.name = name
        self._begun = begun
        self._home = home
        self._journal = line
        self._path = path
        self._has_directory = False

    def open(self, stream: Stream) -> tuple[int, bytes]:
        """A private file for all of a stream. Raises OSError. As long as it is open it is locked,
        by which others know that its run lives."""
        path = f"{self._directory()}/{stream.value}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return fd, os.fsencode(path)

    def end(self, outcome: Outcome) -> bool:
        """Write down how it ended. False when the store does not have all of its output."""
        try:
            ended = Ended(
                run=self._begun.run,
                time=round(time.time(), 3),
                ending=outcome.ending,
                seconds=round(outcome.seconds, 4),
                output=self._stored(Stream.OUTPUT, outcome.output),
                errors=None
                if outcome.errors is None
                else self._stored(Stream.ERRORS, outcome.errors),
                left_running=outcome.left_running,
            )
            line = journal.encode(ended) + b"\n"
            if self._has_directory:
                _write(f"{runs(self._home)}/{self.name}/outcome", line)
            self._journal.append(self._path, line)
        except (OSError, ValueError):
            return False
        return not any(each and each.problem for each in (ended.output, ended.errors))

    def _stored(self, stream: Stream, capture: Capture) -> Stored:
        if capture.saved is not None:
            return journal.stored(capture, None)
        if capture.omitted:
            return journal.stored(capture, None)
        data = capture.head + capture.tail
        if len(data) <= SMALL:
            return journal.stored(capture, data)
        fd, _ = self.open(stream)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        return journal.stored(capture, None)

    def _directory(self) -> str:
        path = f"{runs(self._home)}/{self.name}"
        if not self._has_directory:
            private_directory(path)
            _write(f"{path}/plan", journal.encode(self._begun) + b"\n")
            self._has_directory = True
        return path


class Unrecorded(Record):
    """A run that nobody can write down: there is no place, or no room."""

    def __init__(self, name: str, problem: OSError) -> None:
        self.name = name
        self._problem = problem

    def open(self, stream: Stream) -> tuple[int, bytes]:
        del stream
        raise self._problem

    def end(self, outcome: Outcome) -> bool:
        del outcome
        return False


def runs(home: str) -> str:
    return f"{home}/runs"


def _write(path: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
