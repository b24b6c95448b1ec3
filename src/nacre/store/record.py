"""What is remembered of one run, by whoever runs it.

Most runs are two lines in the journal. One whose output is too long for that has a directory,
`runs/rN`, with `plan`, `output` (and `errors`) and `outcome`; it is made when the output overflows
memory, or else at the end. Whatever goes wrong here never hurts the command.
"""

import fcntl
import os
import time
from contextlib import suppress
from itertools import count
from typing import Final

import msgspec

from nacre.events import Stream
from nacre.loop import Call
from nacre.outcome import Capture, Outcome, Survivor
from nacre.plan import Held, Plan
from nacre.store import journal, owner
from nacre.store.appending import Appending
from nacre.store.home import open_private, private_directory, replace, safe_home
from nacre.store.journal import Begun, Ended, Stored
from nacre.text import decode

# So much rides in the journal.
SMALL: Final = 16 * 1024


class Files:
    """What all runs of a tool write to: the counter, which grows by a byte with each, and the
    journal."""

    last = 0  # number that was given
    _home = ""

    def __init__(self, kind: owner.Kind = "host") -> None:
        self.kind = kind
        self.counter = Appending()
        self.journal = Appending(lines=True)
        self.unrecorded = count(1)

    def home(self) -> str:
        """Where they are: found once, since asking takes its time. Raises OSError."""
        self._home = self._home or safe_home()
        return self._home

    def count(self) -> int:
        """The next number. Raises OSError."""
        path = f"{self.home()}/counter"
        number = self.last = self.counter.count(path)
        if number == 1 and (last := _last_known(self.home())):
            # Somebody has removed the counter, but not what was counted.
            self.counter.append(path, b"." * last)
            number = self.last = self.counter.count(path)
        return number

    def close(self) -> None:
        self.counter.close()
        self.journal.close()


class Record:
    """A run has a name once it is numbered, and stands in the journal once it has begun.

    Who runs it for himself begins when it has run for a moment; one that is over by then is
    written down at its end, in one go, which is what most commands are.
    """

    name = ""  # r17; u1 when it could not be written down
    tag: int | None = None  # of the run, before it is numbered
    early = False  # to be written down before anything runs
    problem: OSError | None = None
    _given: int | None = None  # a number that somebody has taken for it
    _begun: Begun | None = None
    _line = b""  # that has not been written yet
    _has_directory = _has_plan = False
    _prepared: tuple[int, bytes] | None = None
    _home = _path = ""

    def __init__(
        self, files: Files, plan: Plan, workspace: bytes, number: int | None = None
    ) -> None:
        self._files = files
        self._plan = plan
        self.workspace = workspace
        if number is not None:
            self._given = number

    def number(self) -> str:
        """Have a name. As often as one likes."""
        if not self.name:
            try:
                self._number()
            except OSError as error:
                self._fail(error)
        return self.name

    def begin(self) -> str:
        """Be in the journal. Returns the name."""
        self.number()
        if self._line:
            try:
                self._files.journal.append(self._path, self._line)
                self._line = b""
            except OSError as error:
                self._fail(error)
        return self.name

    def _number(self) -> None:
        self._home = self._files.home()
        number = self._files.count() if self._given is None else self._given
        self._path = journal.path_of(self._home, journal.key(self.workspace), number)
        self._begun = _begun(number, self._plan, self.workspace, self.tag, self._files.kind)
        self._line = journal.encode(self._begun) + b"\n"
        self.name = f"r{number}"

    def _fail(self, error: OSError) -> None:
        """Nobody can write it down."""
        self.problem, self._begun, self._line = error, None, b""
        if self._given is None:
            self.name = f"u{next(self._files.unrecorded)}"
        else:
            self.name = f"r{self._given}"  # by which somebody knows it already

    def open(self, stream: Stream) -> tuple[int, bytes]:
        """A private file for all of a stream. Raises OSError. As long as it is open it is locked,
        by which others know that its run lives."""
        if stream is Stream.OUTPUT and self._prepared is not None:
            prepared, self._prepared = self._prepared, None
            return prepared
        path = f"{self._directory()}/{stream.value}"
        # It may be there: an interrupt has us do things twice.
        fd = open_private(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return fd, os.fsencode(path)

    def prepare(self) -> None:
        """Make sure, before anything runs, that its output can be kept. Raises OSError. What else
        belongs into its directory comes when it is handed over."""
        self._has_plan = True
        try:
            self._prepared = self.open(Stream.OUTPUT)
        finally:
            self._has_plan = False

    def hand_over(self, shell: Survivor, *, job: bool) -> None:
        """It goes on without whoever has started it. Raises OSError."""
        if self._begun is not None:
            self._begun = msgspec.structs.replace(
                self._begun, shell=shell, handed=time.time(), job=job, epitaph=self._plan.epitaph
            )
        self._has_plan = False
        self._directory()

    def end(self, outcome: Outcome, settle: Call | None = None) -> bool:
        """Write down how it ended. False when the store does not have all of its output. `settle`
        puts our last words at the end of the output: once it is written down where they will be,
        and before that counts."""
        self.number()
        if self._prepared is not None:
            os.close(self.open(Stream.OUTPUT)[0])
        if self._begun is None:
            if settle is not None:
                settle()
            return False
        try:
            errors = outcome.errors
            ended = Ended(
                run=self._begun.run,
                time=time.time(),
                ending=outcome.ending,
                seconds=outcome.seconds,
                output=self._stored(Stream.OUTPUT, outcome.output),
                errors=None if errors is None else self._stored(Stream.ERRORS, errors),
                left_running=outcome.left_running,
                put_down=outcome.put_down,
                out_of_memory=outcome.out_of_memory,
            )
            line = journal.encode(ended) + b"\n"
        except ValueError:
            return False
        kept = [self._end_in_directory(line, settle), self._end_in_journal(line)]
        whole = ended.output.whole and (ended.errors is None or ended.errors.whole)
        return any(kept) and whole

    def _end_in_directory(self, line: bytes, settle: Call | None) -> bool:
        try:
            if self._has_directory:
                replace(f"{self._directory()}/outcome", line, settle)
                return True
        except OSError:  # the journal may still have it
            pass
        if settle is not None:
            settle()
        return False

    def _end_in_journal(self, line: bytes) -> bool:
        try:
            self._files.journal.append(self._path, self._line + line)
        except OSError:
            return False
        self._line = b""
        return True

    def _stored(self, stream: Stream, capture: Capture) -> Stored:
        size, lines, saved = capture.size, capture.lines, capture.saved
        if saved is not None:
            return Stored(size=size, lines=lines, problem=saved.problem, marks=saved.marks)
        if capture.omitted:
            return Stored(size=size, lines=lines, problem="nobody wanted it kept")
        data = capture.head + capture.tail
        if size <= SMALL:
            return Stored(size=size, lines=lines, data=data)
        try:
            fd, _ = self.open(stream)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
        except OSError as error:
            problem = f"the output could not be saved: {error.strerror or error}"
            return Stored(size=size, lines=lines, problem=problem)
        return Stored(size=size, lines=lines)

    def _directory(self) -> str:
        self.begin()
        if self._begun is None:
            raise self.problem or OSError("this run could not be written down")
        path = f"{runs(self._home)}/{self.name}"
        if not self._has_directory:
            private_directory(path)
            self._has_directory = True
        if not self._has_plan:
            replace(f"{path}/plan", journal.encode(self._begun) + b"\n")
            self._has_plan = True
        return path


def _last_known(home: str) -> int:
    """The highest number that a run may have had."""
    found = [0]
    with suppress(OSError):
        found += [int(name[1:]) for name in os.listdir(runs(home)) if name[1:].isdigit()]
    with suppress(OSError):
        for workspace in os.listdir(f"{home}/journal"):
            for name in os.listdir(f"{home}/journal/{workspace}"):
                block = name.partition(".")[0]
                found.append((int(block) + 1) * journal.BLOCK if block.isdigit() else 0)
    return max(found)


def runs(home: str) -> str:
    return f"{home}/runs"


def _names(env: dict[bytes, bytes]) -> list[str]:
    """In one go: there are dozens, and whoever runs this for others has them with each run."""
    return decode(b"\0".join(env)).split("\0") if env else []


def _begun(number: int, plan: Plan, workspace: bytes, tag: int | None, kind: owner.Kind) -> Begun:
    command = plan.command
    return Begun(
        run=number,
        time=time.time(),
        workspace=decode(workspace),
        cwd=decode(command.cwd),
        command=decode(command.given),
        script=None if command.script == command.given else decode(command.script),
        streams=plan.streams,
        timeout=plan.limits.timeout,
        variables=None if command.env is None else _names(command.env),
        place=journal.key(workspace),
        owner=owner.me(kind),
        open_stdin=isinstance(plan.stdin, Held),
        tag=tag,
    )
