"""Reading of a stored run: its journal entries, its output, and whether the run is still alive.

The module `stored_run` only reads the store; `store.run_record` writes the files of a run.
"""

import io
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

import msgspec
from msgspec import Struct

from nacre.model.events import Stream
from nacre.model.outcome import Cancelled, Capture, Ending, Exited, Killed, Lost, Outcome, Saved
from nacre.model.plan import Keep, Streams
from nacre.model.requests import Last
from nacre.procfs import processes
from nacre.store import journal, run_owner
from nacre.store.journal import EndEntry, StartEntry, StoredStream
from nacre.store.output_range import BLOCK_SIZE, count_newlines, locate, read_exactly
from nacre.store.run_owner import Owner
from nacre.store.run_record import runs_directory
from nacre.store.state_dir import draft_path, state_dir
from nacre.text.clean import decode
from nacre.text.hidden_ranges import HiddenRangesFile
from nacre.text.line_index import LineIndex


class NoSuchRun(LookupError):
    """Error for a run that this workspace does not have, or whose output is not stored, perhaps
    because the cleanup deleted it.

    The message of a `NoSuchRun` exception is a complete sentence.
    """


class StoredRun(Struct, frozen=True, kw_only=True):
    """One run as found in the store: its journal entries and the directory of its files."""

    number: int
    start_entry: StartEntry
    end_entry: EndEntry | None
    directory: str

    def stored_stream(self, stream: Stream) -> StoredStream | None:
        if self.end_entry is None:
            return None
        return self.end_entry.output if stream is Stream.OUTPUT else self.end_entry.errors

    def path(self, stream: Stream) -> str:
        """Return the path of the file for one output stream of the run, whether or not the file
        exists."""
        return f"{self.directory}/{stream.value}"

    def journal_data(self, stream: Stream) -> bytes | None:
        """Return the bytes of an output stream if the journal contains them, else None."""
        stored = self.stored_stream(stream)
        return None if stored is None else stored.data

    def check_stored(self, stream: Stream) -> None:
        """Check that the store has this output stream of the run. Raises NoSuchRun if the stream is
        not stored."""
        if self.journal_data(stream) is None and not os.path.isfile(self.path(stream)):
            raise NoSuchRun(self._explain_missing(stream))

    def open(self, stream: Stream = Stream.OUTPUT) -> BinaryIO:
        """Open an output stream of the run for reading; a live run may have stored only a part of
        it.

        Raises NoSuchRun if the stream is not stored. Raises OSError if the file of the output
        stream cannot be read.
        """
        self.check_stored(stream)
        try:
            fd = os.open(self.path(stream), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return io.BytesIO(self.journal_data(stream) or b"")
        file = os.fdopen(fd, "rb", buffering=0)
        stored = self.stored_stream(stream)
        return (
            HiddenRangesFile(file, stored.hidden) if stored is not None and stored.hidden else file
        )

    def size(self, stream: Stream = Stream.OUTPUT) -> int | None:
        """Return how many bytes of an output stream are stored; None if the stream cannot be
        read."""
        try:
            with self.open(stream) as source:
                return source.seek(0, os.SEEK_END)
        except (NoSuchRun, OSError):
            return None

    @property
    def name(self) -> str:
        return f"r{self.number}"

    @property
    def owner(self) -> Owner | None:
        return run_owner.parse_owner(self.start_entry.owner)

    @property
    def ending(self) -> Ending | None:
        """Return how the run ended; None while the run is alive.

        The ending is `Lost` if the process that owned the run died before it recorded the run's
        end.
        """
        if self.end_entry is not None:
            ending = self.end_entry.ending
        elif self.is_alive:
            return None
        else:
            ending = Lost(last_seen=self._last_seen - self.start_entry.time)
        if isinstance(ending, Exited | Killed | Lost) and self._is_marked_cancelled:
            return Cancelled(None if isinstance(ending, Lost) else ending)
        return ending

    @property
    def _is_marked_cancelled(self) -> bool:
        return os.path.exists(f"{self.directory}/cancelled")

    @property
    def is_alive(self) -> bool:
        """Return whether the run's owner process or the run's shell is alive; meant for a run whose
        end is not recorded."""
        if self.owner is None:
            return False
        if self.owner.is_alive:
            return True
        shell = self.start_entry.shell
        if shell is None or self.owner.boot != run_owner.boot_id():
            return False
        return processes.is_same_process(shell.pid, shell.started)

    @property
    def seconds(self) -> float:
        """Return how many seconds the run took, or has taken so far."""
        if self.end_entry is not None:
            return self.end_entry.seconds
        return (time.time() if self.is_alive else self._last_seen) - self.start_entry.time

    @property
    def _last_seen(self) -> float:
        """Return the Unix time of the last write to the run's output file, or of the run's start if
        the run has no output file."""
        try:
            return max(self.start_entry.time, os.stat(self.path(Stream.OUTPUT)).st_mtime)
        except OSError:
            return self.start_entry.time

    def capture(self, keep: Keep, stream: Stream = Stream.OUTPUT) -> Capture:
        """Return a stored output stream as a `Capture`: the whole stream, or its head and tail
        within the limits of `keep`."""
        stored = self.stored_stream(stream)
        problem = None if stored is None else stored.problem
        saved = Saved(path=os.fsencode(self.path(stream)), size=0, complete=not problem)
        if self.journal_data(stream) is not None and not os.path.exists(self.path(stream)):
            saved = msgspec.structs.replace(saved, path=None)
        try:
            with self.open(stream) as source:
                capture = _read_capture(source, keep, stored, self.line_index(stream))
        except (NoSuchRun, OSError):
            size, lines = (0, 0) if stored is None else (stored.size, stored.lines)
            return Capture(size=size, newlines=lines)
        saved = msgspec.structs.replace(saved, size=capture.size, problem=problem)
        return msgspec.structs.replace(capture, saved=saved)

    def line_index(self, stream: Stream = Stream.OUTPUT) -> LineIndex:
        return LineIndex(os.fsencode(self.path(stream)))

    def _explain_missing(self, stream: Stream) -> str:
        stored = self.stored_stream(stream)
        name = self.name
        if stream is Stream.ERRORS and self.start_entry.streams is Streams.MERGED:
            return f"{name} has stderr merged into its output; read the output"
        if self.end_entry is None:
            if self.owner is not None and self.owner.kind == "host" and self.owner.is_alive:
                return (
                    f"{name} runs in another program (process {self.owner.pid}), which "
                    "keeps the output until the run has ended"
                )
            if self.ending is None:
                return f"{name} is running, and none of its output is stored yet; read it later"
            return f"{name} was lost with the process that ran it, before any output was stored"
        problem = None if stored is None else stored.problem
        return f"the output of {name} was not kept: {problem or 'it was cleaned up, or removed'}"


def parse_run_id(text: str) -> int:
    """Return the number in a run id: `17`, `r17` or `artifact://17`. Raises NoSuchRun if the text
    is no run id."""
    digits = text.removeprefix("artifact://").rstrip("/").removeprefix("r")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise NoSuchRun(f"{text!r} is not a run id; write 17, r17 or artifact://17")
    return int(digits)


def find_run(run: int, workspace: bytes) -> StoredRun:
    """Read the run with this number from the store.

    Raises NoSuchRun if the run is not stored or belongs to another workspace. Raises OSError if
    there is no state directory because the user has no home directory.
    """
    place = state_dir()
    directory = f"{runs_directory(place)}/r{run}"
    begun, ended = read_run_directory(directory)
    if begun is None or ended is None:
        found = journal.find_entries(place, journal.workspace_key(workspace), run)
        begun, ended = begun or found[0], found[1]
    if begun is None or begun.workspace_key != journal.workspace_key(workspace):
        where = decode(workspace)
        raise NoSuchRun(f"there is no run r{run} in this workspace ({where}), or it was cleaned up")
    return StoredRun(number=run, start_entry=begun, end_entry=ended, directory=directory)


def build_outcome(run: StoredRun, keep: Keep) -> Outcome | None:
    """Build the outcome of an ended run from its stored data; return None while the run is
    alive."""
    state = run.ending
    if state is None:
        return None
    ended = run.end_entry
    return Outcome(
        run=run.name,
        ending=state,
        output=run.capture(keep),
        errors=run.capture(keep, Stream.ERRORS) if ended and ended.errors else None,
        seconds=run.seconds,
        left_running=ended.left_running if ended else (),
        terminated=ended.terminated if ended else (),
        out_of_memory=ended is not None and ended.out_of_memory,
        pipelines=ended.pipelines if ended else (),
        stored=ended is not None and ended.output.complete,
    )


def _read_capture(
    source: BinaryIO, keep: Keep, stored: StoredStream | None, index: LineIndex
) -> Capture:
    size = source.seek(0, os.SEEK_END)
    whole = size <= keep.whole
    source.seek(0)
    head = read_exactly(source, size if whole else keep.head)
    tail, last = b"", b""
    if not whole:
        source.seek(max(len(head), size - keep.tail))
        tail = read_exactly(source, keep.tail)
    if size:
        source.seek(size - 1)
        last = read_exactly(source, 1)
    unterminated = last not in (b"", b"\n")
    if stored is not None and stored.size == size:
        newlines = stored.lines - unterminated
    else:
        newlines = count_newlines(source, size, index)
    return Capture(head=head, tail=tail, size=size, newlines=newlines, unterminated=unterminated)


def read_run_directory(path: str) -> tuple[StartEntry | None, EndEntry | None]:
    """Return the start entry (file `plan`) and the end entry (file `outcome`) in a run's directory.

    Return (start entry, None) if the run's directory has no end entry, and (None, None) if the
    run's directory has no start entry. The end entry is read from the temporary file
    `outcome.draft` if the file `outcome` does not exist yet.
    """
    begun, outcome = _read_entry(f"{path}/plan"), f"{path}/outcome"
    ended = _read_entry(outcome) or _read_entry(draft_path(outcome))
    if not isinstance(begun, StartEntry):
        return None, None
    return begun, ended if isinstance(ended, EndEntry) else None


def _read_entry(path: str) -> StartEntry | EndEntry | None:
    try:
        with open(path, "rb") as file:
            return journal.decode_entry(file.read())
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


def follow_output(
    run: StoredRun, workspace: bytes, stream: Stream = Stream.OUTPUT, lines: int | None = None
) -> Iterator[bytes]:
    """Yield the stored output of a run, or its last `lines` lines, and then its new output until
    the run has ended.

    Yield b"" when there is no new output yet, so that the caller can decide how long to wait.
    Raises NoSuchRun, OSError.
    """
    at = 0 if lines is None else _find_tail_start(run, stream, lines)
    while True:
        data = _read_block(run, stream, at)
        # When a run ends, nacre records the byte range of the completion line (a note, not output)
        # and then appends the completion line to the output file. A block that was read before the
        # run was known to have ended may contain the completion line, so `follow_output` reads the
        # block again, without the byte range of the completion line.
        run = find_run(run.number, workspace)
        over = run.ending is not None
        if over:
            data = _read_block(run, stream, at)
        at += len(data)
        yield data
        if over and not data:
            return


def _find_tail_start(run: StoredRun, stream: Stream, lines: int) -> int:
    """Return the byte offset where the last `lines` lines of the stored output begin; 0 if a live
    run has no stored output yet."""
    try:
        with run.open(stream) as source:
            return locate(source, Last(lines=lines))[0]
    except NoSuchRun:
        if run.ending is not None:
            raise
        return 0


def _read_block(run: StoredRun, stream: Stream, at: int) -> bytes:
    """Read a block of an output stream from byte offset `at`; return b"" if a live run has no
    output file yet."""
    try:
        with run.open(stream) as source:
            source.seek(at)
            return read_exactly(source, BLOCK_SIZE)
    except NoSuchRun:
        if run.ending is not None:
            raise
        return b""


def mark_cancelled(run: StoredRun) -> None:
    """Record in the run's directory that the run was cancelled. `mark_cancelled` is for a run whose
    owner is no live warden, and so cannot record that the run was cancelled."""
    with suppress(OSError):
        os.makedirs(run.directory, 0o700, exist_ok=True)
        os.close(os.open(f"{run.directory}/cancelled", os.O_CREAT | os.O_CLOEXEC, 0o600))
