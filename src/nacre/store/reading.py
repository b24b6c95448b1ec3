"""Reading the output of a run, by lines and by what is in them, without having it in memory.

What is read may be terabytes, or one line of a gigabyte: it goes by in blocks.
"""

import io
import os
import time
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from nacre import proc
from nacre.events import Stream
from nacre.lines import NO_LINES, Lines
from nacre.outcome import Capture, Ending, Lost, Outcome, Saved
from nacre.plan import Keep, Streams
from nacre.store import journal, owner
from nacre.store.home import draft, home
from nacre.store.journal import Begun, Ended, Stored
from nacre.store.owner import Owner
from nacre.store.record import runs
from nacre.text import decode
from nacre.unmarked import Unmarked

_BLOCK: Final = 1024 * 1024


class NoSuchRun(LookupError):
    """There is no such run in this workspace, or it was swept; the message is a sentence."""


class Run(Struct, frozen=True, kw_only=True):
    """What the store knows of a run."""

    number: int
    begun: Begun
    ended: Ended | None
    directory: str

    def stored(self, stream: Stream) -> Stored | None:
        if self.ended is None:
            return None
        return self.ended.output if stream is Stream.OUTPUT else self.ended.errors

    def path(self, stream: Stream) -> str:
        """Where the stream is, or would be, as a file."""
        return f"{self.directory}/{stream.value}"

    def small(self, stream: Stream) -> bytes | None:
        """The stream itself, when it rides in the journal."""
        kept = self.stored(stream)
        return None if kept is None else kept.data

    def check(self, stream: Stream) -> None:
        """Raises NoSuchRun when the stream is nowhere."""
        if self.small(stream) is None and not os.path.isfile(self.path(stream)):
            raise NoSuchRun(self._why_not(stream))

    def open(self, stream: Stream = Stream.OUTPUT) -> BinaryIO:
        """The stream, as far as it is there. Raises NoSuchRun when it is nowhere, OSError when it
        cannot be read."""
        self.check(stream)
        try:
            fd = os.open(self.path(stream), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return io.BytesIO(self.small(stream) or b"")
        file = os.fdopen(fd, "rb", buffering=0)
        kept = self.stored(stream)
        return Unmarked(file, kept.marks) if kept is not None and kept.marks else file

    def size(self, stream: Stream = Stream.OUTPUT) -> int | None:
        """How many bytes there are; None: nowhere."""
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
        return owner.read(self.begun.owner)

    @property
    def state(self) -> Ending | None:
        """How it ended; None: it runs. Who was to say so may be dead: then it is lost."""
        if self.ended is not None:
            return self.ended.ending
        return None if self.lives else Lost(last_seen=self._last_seen - self.begun.time)

    @property
    def lives(self) -> bool:
        """Of one that has no end yet: whether whoever runs it lives, or at least its shell."""
        if self.owner is None:
            return False
        if self.owner.lives:
            return True
        shell = self.begun.shell
        if shell is None or self.owner.boot != owner.boot():
            return False
        process = proc.look(shell.pid)
        return process is not None and process.alive and process.started == shell.started

    @property
    def seconds(self) -> float:
        """How long it ran, or has run."""
        if self.ended is not None:
            return self.ended.seconds
        return (time.time() if self.lives else self._last_seen) - self.begun.time

    @property
    def _last_seen(self) -> float:
        """When there was last anything of it, as far as can be told."""
        try:
            return max(self.begun.time, os.stat(self.path(Stream.OUTPUT)).st_mtime)
        except OSError:
            return self.begun.time

    def capture(self, keep: Keep, stream: Stream = Stream.OUTPUT) -> Capture:
        """What there is of a stream, as one who had heard it would have kept it."""
        kept = self.stored(stream)
        problem = None if kept is None else kept.problem
        saved = Saved(path=os.fsencode(self.path(stream)), size=0, complete=not problem)
        if self.small(stream) is not None and not os.path.exists(self.path(stream)):
            saved = msgspec.structs.replace(saved, path=None)
        try:
            with self.open(stream) as source:
                made = _captured(source, keep, kept, self.index(stream))
        except (NoSuchRun, OSError):
            size, lines = (0, 0) if kept is None else (kept.size, kept.lines)
            return Capture(size=size, newlines=lines)
        saved = msgspec.structs.replace(saved, size=made.size, problem=problem)
        return msgspec.structs.replace(made, saved=saved)

    def index(self, stream: Stream = Stream.OUTPUT) -> Lines:
        """Where its lines are."""
        return Lines(os.fsencode(self.path(stream)))

    def _why_not(self, stream: Stream) -> str:
        kept = self.stored(stream)
        name = self.name
        if stream is Stream.ERRORS and self.begun.streams is Streams.MERGED:
            return f"{name} has its errors in its output; read that"
        if self.ended is None:
            if self.owner is not None and self.owner.kind == "host" and self.owner.lives:
                return (
                    f"{name} runs in another program (process {self.owner.pid}), which has its "
                    "output until it ends"
                )
            if self.state is None:
                return f"{name} runs, and none of its output is stored yet; read it later"
            return f"{name} was lost with the process that ran it, before any output was stored"
        problem = None if kept is None else kept.problem
        return f"the output of {name} was not kept: {problem or 'it was swept, or removed'}"


def number(text: str) -> int:
    """`17`, `r17` or `artifact://17`. Raises NoSuchRun for anything else."""
    digits = text.removeprefix("artifact://").rstrip("/").removeprefix("r")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise NoSuchRun(f"{text!r} is no run; write its number, as in 17, r17 or artifact://17")
    return int(digits)


def find(run: int, workspace: bytes) -> Run:
    """Raises NoSuchRun, also for a run of another workspace, and OSError without a home."""
    place = home()
    directory = f"{runs(place)}/r{run}"
    begun, ended = in_directory(directory)
    if begun is None or ended is None:
        found = journal.find(place, journal.key(workspace), run)
        begun, ended = begun or found[0], found[1]
    if begun is None or begun.place != journal.key(workspace):
        where = decode(workspace)
        raise NoSuchRun(f"there is no run r{run} in this workspace ({where}), or it was swept")
    return Run(number=run, begun=begun, ended=ended, directory=directory)


def outcome(run: Run, keep: Keep) -> Outcome | None:
    """Of a run that has ended; None of one that goes on."""
    state = run.state
    if state is None:
        return None
    ended = run.ended
    return Outcome(
        run=run.name,
        ending=state,
        output=run.capture(keep),
        errors=run.capture(keep, Stream.ERRORS) if ended and ended.errors else None,
        seconds=run.seconds,
        left_running=ended.left_running if ended else (),
        put_down=ended.put_down if ended else (),
        out_of_memory=ended is not None and ended.out_of_memory,
        stored=ended is not None and ended.output.whole,
    )


def _captured(source: BinaryIO, keep: Keep, kept: Stored | None, index: Lines) -> Capture:
    size = source.seek(0, os.SEEK_END)
    whole = size <= keep.whole
    source.seek(0)
    head = read_up_to(source, size if whole else keep.head)
    tail, last = b"", b""
    if not whole:
        source.seek(max(len(head), size - keep.tail))
        tail = read_up_to(source, keep.tail)
    if size:
        source.seek(size - 1)
        last = read_up_to(source, 1)
    unterminated = last not in (b"", b"\n")
    if kept is not None and kept.size == size:
        newlines = kept.lines - unterminated
    else:
        newlines = newlines_before(source, size, index)
    return Capture(head=head, tail=tail, size=size, newlines=newlines, unterminated=unterminated)


def newlines_before(source: BinaryIO, position: int, index: Lines) -> int:
    """How many there are in so many first bytes."""
    mark = index.before_byte(position)
    count, left = mark.newlines, position - mark.size
    source.seek(mark.size)
    while left > 0 and (block := source.read(min(_BLOCK, left))):
        count, left = count + block.count(b"\n"), left - len(block)
    return count


def read_up_to(source: BinaryIO, count: int) -> bytes:
    """So many bytes; a raw file may give fewer at a time."""
    pieces = []
    while count > 0 and (piece := source.read(count)):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def in_directory(path: str) -> tuple[Begun | None, Ended | None]:
    """What the directory of a run says about it."""
    begun, outcome = _line(f"{path}/plan"), f"{path}/outcome"
    ended = _line(outcome) or _line(draft(outcome))
    if not isinstance(begun, Begun):
        return None, None
    return begun, ended if isinstance(ended, Ended) else None


def _line(path: str) -> Begun | Ended | None:
    try:
        with open(path, "rb") as file:
            return journal.decode(file.read())
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


def lines(
    source: BinaryIO, first: int = 1, last: int | None = None, index: Lines | None = None
) -> Iterator[bytes]:
    """The bytes of these lines, counted from 1, the last one included."""
    source.seek(line_start(source, first, index))
    left = None if last is None else last - first + 1
    while (left is None or left > 0) and (block := source.read(_BLOCK)):
        end = len(block)
        if left is not None:
            end, taken = _after(block, 0, left)
            left -= taken
        if end:
            yield block[:end]


def line_start(source: BinaryIO, number: int, index: Lines | None = None) -> int:
    """Where this line begins; where the output ends, if there is none."""
    mark = (index or NO_LINES).before_line(number)
    before, at = number - 1 - mark.newlines, mark.size
    source.seek(at)
    while before > 0 and (block := source.read(_BLOCK)):
        end, passed = _after(block, 0, before)
        before, at = before - passed, at + end
    return at


def _after(block: bytes, start: int, count: int) -> tuple[int, int]:
    """Where the block goes on after so many newlines, and how many there were."""
    there = block.count(b"\n", start)
    if there < count:
        return len(block), there
    end = start
    for _ in range(count):
        end = block.index(b"\n", end) + 1
    return end, count


def tail(source: BinaryIO, count: int) -> Iterator[bytes]:
    """The bytes of the last so many lines."""
    size = source.seek(0, os.SEEK_END)
    at, wanted = size, count
    while at > 0 and wanted > 0:
        start = max(0, at - _BLOCK)
        source.seek(start)
        block = source.read(at - start)
        # The newline that ends the last line ends no line before it.
        end = len(block) - (at == size and block.endswith(b"\n"))
        while wanted and (found := block.rfind(b"\n", 0, end)) >= 0:
            end = found
            wanted -= 1
        at = start + found + 1 if not wanted else start
    source.seek(at if count else size)
    while block := source.read(_BLOCK):
        yield block


def follow(
    run: Run, workspace: bytes, stream: Stream = Stream.OUTPUT, lines: int | None = None
) -> Iterator[bytes]:
    """What there is of it (or its last lines), and what is yet to come, until it has ended; b""
    when there is nothing now: the caller chooses how long to wait. Raises NoSuchRun, OSError."""
    at = 0 if lines is None else _tail_of(run, stream, lines)
    while True:
        data = _from(run, stream, at)
        # Our own last words are no output. Where they will stand is written down before they do.
        run = find(run.number, workspace)
        over = run.state is not None
        if over:
            data = _from(run, stream, at)
        at += len(data)
        yield data
        if over and not data:
            return


def _tail_of(run: Run, stream: Stream, lines: int) -> int:
    """Where the last so many lines begin."""
    try:
        with run.open(stream) as source:
            return source.seek(0, os.SEEK_END) - sum(map(len, tail(source, lines)))
    except NoSuchRun:
        if run.state is not None:
            raise
        return 0


def _from(run: Run, stream: Stream, at: int) -> bytes:
    """A block of the stream from there on; nothing of one that has no file yet."""
    try:
        with run.open(stream) as source:
            source.seek(at)
            return read_up_to(source, _BLOCK)
    except NoSuchRun:
        if run.state is not None:
            raise
        return b""
