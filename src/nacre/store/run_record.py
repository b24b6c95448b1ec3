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

from nacre.eventloop import Callback
from nacre.model.events import Stream
from nacre.model.outcome import Capture, Outcome, Survivor
from nacre.model.plan import OpenStdin, Plan
from nacre.store import journal, run_owner
from nacre.store.append_file import AppendFile
from nacre.store.journal import EndEntry, StartEntry, StoredStream
from nacre.store.state_dir import (
    make_private_directory,
    open_private,
    private_state_dir,
    write_atomically,
)
from nacre.text.clean import decode

# So much rides in the journal.
MAX_IN_JOURNAL: Final = 16 * 1024


class RunFiles:
    """What all runs of a tool write to: the counter, which grows by a byte with each, and the
    journal."""

    def __init__(self, kind: run_owner.Kind = "host") -> None:
        self.last = 0  # number that was given
        self._home = ""
        self.kind = kind
        self.counter = AppendFile()
        self.journal = AppendFile(lines=True)
        self.unrecorded = count(1)

    def home(self) -> str:
        """Where they are: found once, since asking takes its time. Raises OSError."""
        self._home = self._home or private_state_dir()
        return self._home

    def next_number(self) -> int:
        """The next number. Raises OSError."""
        path = f"{self.home()}/counter"
        number = self.last = self.counter.append_counted(path)
        if number == 1 and (last := _highest_number(self.home())):
            # Somebody has removed the counter, but not what was counted.
            self.counter.append(path, b"." * last)
            number = self.last = self.counter.append_counted(path)
        return number

    def close(self) -> None:
        self.counter.close()
        self.journal.close()


class RunRecord:
    """A run has a name once it is numbered, and stands in the journal once it has begun.

    Who runs it for himself begins when it has run for a moment; one that is over by then is
    written down at its end, in one go, which is what most commands are.
    """

    # Class-level defaults: see `engine.run.Run`.
    name = ""  # r17; u1 when it could not be written down
    tag: int | None = None  # of the run, before it is numbered
    write_early = False  # to be written down before anything runs
    problem: OSError | None = None
    _given_number: int | None = None  # a number that somebody has taken for it
    _start_entry: StartEntry | None = None
    _unwritten_line = b""  # that has not been written yet
    _has_directory = _has_plan = False
    _prepared: tuple[int, bytes] | None = None
    _home = _path = ""

    def __init__(
        self, files: RunFiles, plan: Plan, workspace: bytes, number: int | None = None
    ) -> None:
        self._files = files
        self._plan = plan
        self.workspace = workspace
        if number is not None:
            self._given_number = number

    def assign_name(self) -> str:
        """Have a name. As often as one likes."""
        if not self.name:
            try:
                self._assign_name()
            except OSError as error:
                self._on_error(error)
        return self.name

    def write_start(self) -> str:
        """Be in the journal. Returns the name."""
        self.assign_name()
        if self._unwritten_line:
            try:
                self._files.journal.append(self._path, self._unwritten_line)
                self._unwritten_line = b""
            except OSError as error:
                self._on_error(error)
        return self.name

    def _assign_name(self) -> None:
        self._home = self._files.home()
        number = self._files.next_number() if self._given_number is None else self._given_number
        self._path = journal.journal_path(self._home, journal.workspace_key(self.workspace), number)
        self._start_entry = _build_start_entry(
            number, self._plan, self.workspace, self.tag, self._files.kind
        )
        self._unwritten_line = journal.encode_entry(self._start_entry) + b"\n"
        self.name = f"r{number}"

    def _on_error(self, error: OSError) -> None:
        """Nobody can write it down."""
        self.problem, self._start_entry, self._unwritten_line = error, None, b""
        if self._given_number is None:
            self.name = f"u{next(self._files.unrecorded)}"
        else:
            self.name = f"r{self._given_number}"  # by which somebody knows it already

    def open_stream(self, stream: Stream) -> tuple[int, bytes]:
        """A private file for all of a stream. Raises OSError. As long as it is open it is locked,
        by which others know that its run lives."""
        if stream is Stream.OUTPUT and self._prepared is not None:
            prepared, self._prepared = self._prepared, None
            return prepared
        path = f"{self._make_directory()}/{stream.value}"
        # It may be there: an interrupt has us do things twice.
        fd = open_private(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return fd, os.fsencode(path)

    def prepare_output(self) -> None:
        """Make sure, before anything runs, that its output can be kept. Raises OSError. What else
        belongs into its directory comes when it is handed over."""
        self._has_plan = True
        try:
            self._prepared = self.open_stream(Stream.OUTPUT)
        finally:
            self._has_plan = False

    def detach(self, shell: Survivor, *, job: bool) -> None:
        """It goes on without whoever has started it. Raises OSError."""
        if self._start_entry is not None:
            self._start_entry = msgspec.structs.replace(
                self._start_entry,
                shell=shell,
                detached_at=time.time(),
                job=job,
                completion_line=self._plan.completion_line,
            )
        self._has_plan = False
        self._make_directory()

    def write_end(self, outcome: Outcome, settle: Callback | None = None) -> bool:
        """Write down how it ended. False when the store does not have all of its output. `settle`
        puts our last words at the end of the output: once it is written down where they will be,
        and before that counts."""
        self.assign_name()
        if self._prepared is not None:
            os.close(self.open_stream(Stream.OUTPUT)[0])
        if self._start_entry is None:
            if settle is not None:
                settle()
            return False
        try:
            errors = outcome.errors
            ended = EndEntry(
                run=self._start_entry.run,
                time=time.time(),
                ending=outcome.ending,
                seconds=outcome.seconds,
                output=self._store_stream(Stream.OUTPUT, outcome.output),
                errors=None if errors is None else self._store_stream(Stream.ERRORS, errors),
                left_running=outcome.left_running,
                terminated=outcome.terminated,
                out_of_memory=outcome.out_of_memory,
            )
            line = journal.encode_entry(ended) + b"\n"
        except ValueError:
            return False
        written = [self._write_outcome_file(line, settle), self._write_journal_end(line)]
        whole = ended.output.complete and (ended.errors is None or ended.errors.complete)
        return any(written) and whole

    def _write_outcome_file(self, line: bytes, settle: Callback | None) -> bool:
        try:
            if self._has_directory:
                write_atomically(f"{self._make_directory()}/outcome", line, settle)
                return True
        except OSError:  # the journal may still have it
            pass
        if settle is not None:
            settle()
        return False

    def _write_journal_end(self, line: bytes) -> bool:
        try:
            self._files.journal.append(self._path, self._unwritten_line + line)
        except OSError:
            return False
        self._unwritten_line = b""
        return True

    def _store_stream(self, stream: Stream, capture: Capture) -> StoredStream:
        size, lines, saved = capture.size, capture.lines, capture.saved
        if saved is not None:
            return StoredStream(size=size, lines=lines, problem=saved.problem, hidden=saved.hidden)
        if capture.omitted:
            return StoredStream(size=size, lines=lines, problem="nobody wanted it kept")
        data = capture.head + capture.tail
        if size <= MAX_IN_JOURNAL:
            return StoredStream(size=size, lines=lines, data=data)
        try:
            fd, _ = self.open_stream(stream)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
        except OSError as error:
            problem = f"the output could not be saved: {error.strerror or error}"
            return StoredStream(size=size, lines=lines, problem=problem)
        return StoredStream(size=size, lines=lines)

    def _make_directory(self) -> str:
        self.write_start()
        if self._start_entry is None:
            raise self.problem or OSError("this run could not be written down")
        path = f"{runs_directory(self._home)}/{self.name}"
        if not self._has_directory:
            make_private_directory(path)
            self._has_directory = True
        if not self._has_plan:
            write_atomically(f"{path}/plan", journal.encode_entry(self._start_entry) + b"\n")
            self._has_plan = True
        return path


def _highest_number(home: str) -> int:
    """The highest number that a run may have had."""
    found = [0]
    with suppress(OSError):
        found += [int(name[1:]) for name in os.listdir(runs_directory(home)) if name[1:].isdigit()]
    with suppress(OSError):
        for workspace in os.listdir(f"{home}/journal"):
            for name in os.listdir(f"{home}/journal/{workspace}"):
                block = name.partition(".")[0]
                found.append((int(block) + 1) * journal.RUNS_PER_FILE if block.isdigit() else 0)
    return max(found)


def runs_directory(home: str) -> str:
    return f"{home}/runs"


def _variable_names(env: dict[bytes, bytes]) -> list[str]:
    """In one go: there are dozens, and whoever runs this for others has them with each run."""
    return decode(b"\0".join(env)).split("\0") if env else []


def _build_start_entry(
    number: int, plan: Plan, workspace: bytes, tag: int | None, kind: run_owner.Kind
) -> StartEntry:
    command = plan.command
    return StartEntry(
        run=number,
        time=time.time(),
        workspace=decode(workspace),
        cwd=decode(command.cwd),
        command=decode(command.original),
        script=None if command.script == command.original else decode(command.script),
        streams=plan.streams,
        timeout=plan.limits.timeout,
        variables=None if command.env is None else _variable_names(command.env),
        workspace_key=journal.workspace_key(workspace),
        owner=run_owner.own_id(kind),
        open_stdin=isinstance(plan.stdin, OpenStdin),
        tag=tag,
    )
