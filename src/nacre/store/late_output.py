"""Late output: what leftover processes, which outlive their run, print after the run has ended.

What leftover processes print is appended to the output file of their run. A run whose output is
stored in the journal has no output file, so nacre first creates the file, in a new directory, with
the output from the journal.
"""

import fcntl
import os
from contextlib import suppress

from nacre.model.events import Stream
from nacre.model.plan import Keep
from nacre.store import journal
from nacre.store.state_dir import make_private_directory, write_atomically
from nacre.store.stored_run import StoredRun
from nacre.text.clean import human_size
from nacre.text.line_index import LineIndexWriter


class _IndexedStream:
    """Line index of an output stream, with the number of bytes and newlines that the stream has so
    far."""

    def __init__(self, index: LineIndexWriter, size: int, newlines: int) -> None:
        self.index = index
        self.size = size
        self.newlines = newlines


class LateOutput:
    """Writer of the output that a run's leftover processes print after the run's end, up to the
    run's disk limit."""

    def __init__(self, run: StoredRun, limit: int) -> None:
        self._run = run
        self._limit = limit
        self._fds: dict[Stream, int] = {}
        self._indices: dict[Stream, _IndexedStream] = {}

    def append(self, stream: Stream, data: bytes | bytearray) -> bool:
        """Append output of a leftover process (a process that has outlived its run) to the run's
        output file; return False once the file has reached the run's disk limit."""
        try:
            fd = self._fds.get(stream)
            if fd is None:
                fd = self._fds[stream] = self._open(stream)
            rest = memoryview(data)[: max(0, self._limit - os.fstat(fd).st_size)]
            full = len(rest) < len(data)
            while rest:
                count = os.write(fd, rest)
                self._count(stream, rest[:count])
                rest = rest[count:]
            if full:
                limit = human_size(self._limit)
                os.write(fd, f"\n[output stopped: the disk limit of {limit} is reached]\n".encode())
        except OSError:
            # Output that cannot be written to the run's output file is dropped; the leftover
            # process that printed the output may go on.
            return True
        return not full

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _count(self, stream: Stream, data: memoryview) -> None:
        counted = self._indices.get(stream)
        if counted is not None:
            counted.size += len(data)
            counted.newlines += bytes(data).count(b"\n")
            counted.index.add(counted.size, counted.newlines)

    def _open(self, stream: Stream) -> int:
        path = self._run.path(stream)
        if not os.path.exists(path):
            self._create_file(stream)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        with suppress(OSError):  # the file system may not support locks
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        stored, size = self._run.stored_stream(stream), self._run.size(stream)
        if stored is not None and stored.size == size:
            self._indices[stream] = _IndexedStream(
                LineIndexWriter(os.fsencode(path)), size, self._newlines(stream)
            )
        return fd

    def _newlines(self, stream: Stream) -> int:
        capture = self._run.capture(Keep(whole=0, head=0, tail=0), stream)
        return capture.newlines

    def _create_file(self, stream: Stream) -> None:
        run = self._run
        make_private_directory(run.directory)
        write_atomically(run.path(stream), run.journal_data(stream) or b"")
        # The file `outcome` is written before the file `plan`, because a run with a plan and no
        # outcome counts as lost.
        if run.end_entry is not None:
            write_atomically(
                f"{run.directory}/outcome", journal.encode_entry(run.end_entry) + b"\n"
            )
        write_atomically(f"{run.directory}/plan", journal.encode_entry(run.start_entry) + b"\n")
