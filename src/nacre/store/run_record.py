"""Run record: what the process that executes a run writes to the store about the run.

Most runs are stored as two lines in the journal. A run whose output is too long for the journal has
a directory, `runs/rN`, with the files `plan`, `output` (and `errors`) and `outcome`. The directory
of a run is created when the output overflows memory, or else when the run ends. A run that was
detached (continues after its call) has a directory in the store even if its output is short. An
error while a run record is written never affects the command.
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
from nacre.model.outcome import Capture, Exited, Killed, Outcome, Survivor
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

# Maximum size in bytes of an output that is stored in the journal itself.
MAX_IN_JOURNAL: Final = 16 * 1024


class RunFiles:
    """Files that all runs of a tool append to: the counter of run numbers and the journal.

    The counter file grows by one byte with each run, so its size is the number of the last run.
    """

    def __init__(self, kind: run_owner.Kind = "host") -> None:
        self.last = 0  # run number that was assigned last
        self._home = ""
        self.kind = kind
        self.counter = AppendFile()
        self.journal = AppendFile(lines=True)
        self.unrecorded = count(1)

    def home(self) -> str:
        """Return the path of the state directory. Raises OSError.

        The state directory is looked up only once, because the lookup takes time.
        """
        self._home = self._home or private_state_dir()
        return self._home

    def next_number(self) -> int:
        """Return the next run number. Raises OSError."""
        path = f"{self.home()}/counter"
        number = self.last = self.counter.append_counted(path)
        if number == 1 and (last := _highest_number(self.home())):
            # If the counter file was removed, but runs with earlier numbers are still stored, the
            # count continues after the highest of these numbers.
            self.counter.append(path, b"." * last)
            number = self.last = self.counter.append_counted(path)
        return number

    def close(self) -> None:
        self.counter.close()
        self.journal.close()


class RunRecord:
    """Record of one run: its name, its start entry and its end entry in the store.

    `assign_name` gives the run its name, and `write_start` writes the start entry to the journal. A
    host process that executes a run itself writes the start entry a moment after the command was
    started. If the run ends before its start entry is written, as most runs do, a single write adds
    the start entry and the end entry.
    """

    # Class-level defaults for the attributes of a `RunRecord` save time in each run; see
    # `engine.run.Run`.
    name = ""  # name of the run, as in `r17`; `u1` if the run could not be recorded
    tag: int | None = None  # number that marks the run's processes; set before the run is named
    write_early = False  # whether the start entry is written before the command starts
    problem: OSError | None = None
    # run number that was reserved earlier; None: `assign_name` takes the next number
    _given_number: int | None = None
    _start_entry: StartEntry | None = None
    _unwritten_line = b""  # encoded start entry that is not yet in the journal
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
        """Give the run a name, unless it already has one, and return the run's name."""
        if not self.name:
            try:
                self._assign_name()
            except OSError as error:
                self._on_error(error)
        return self.name

    def write_start(self) -> str:
        """Write the run's start entry to the journal, unless it is already written; return the
        run's name."""
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
        """Name the run and continue without a start entry, because the store cannot be written."""
        self.problem, self._start_entry, self._unwritten_line = error, None, b""
        if self._given_number is None:
            self.name = f"u{next(self._files.unrecorded)}"
        else:
            # Even if the store cannot be written, a run keeps its reserved number, because the
            # caller may already know the number.
            self.name = f"r{self._given_number}"

    def open_stream(self, stream: Stream) -> tuple[int, bytes]:
        """Create a private file for a complete output stream of the run; return its descriptor and
        path.

        While a run's output file is open, a lock on the file tells other processes that the run is
        alive. Raises OSError.
        """
        if stream is Stream.OUTPUT and self._prepared is not None:
            prepared, self._prepared = self._prepared, None
            return prepared
        path = f"{self._make_directory()}/{stream.value}"
        # If an interrupt (Ctrl-C) cuts an action of the run short, nacre repeats the whole action,
        # so the output file may exist already.
        fd = open_private(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        with suppress(OSError):  # the file system may not support locks
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return fd, os.fsencode(path)

    def prepare_output(self) -> None:
        """Create the run's output file before the command starts, to make sure that the output can
        be stored.

        All files of a run's directory except the output are written when the run is detached.
        Raises OSError.
        """
        self._has_plan = True
        try:
            self._prepared = self.open_stream(Stream.OUTPUT)
        finally:
            self._has_plan = False

    def detach(self, shell: Survivor, *, job: bool) -> None:
        """Record that the run was detached and continues without its caller. Raises OSError."""
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
        """Record how the run ended, and return whether the store has all of the run's output.

        `settle` appends the completion line, in which nacre says how the run ended, to the output
        file. nacre writes the file `outcome.draft`, calls `settle`, and then renames the file to
        `outcome`. The file `outcome.draft` already says at which bytes of the output file the
        completion line will be.
        """
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
                session_taken=outcome.session_taken,
                session_saved=_session_saved(outcome),
                session_taken_from=outcome.session_taken_from,
                session_errexit=outcome.session_errexit,
                pipelines=outcome.pipelines,
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
        except OSError:
            # If the file `outcome` cannot be written, the journal still gets the end entry.
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
            return StoredStream(size=size, lines=lines, problem="the caller did not ask to keep it")
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
            raise self.problem or OSError("this run could not be stored")
        path = f"{runs_directory(self._home)}/{self.name}"
        if not self._has_directory:
            make_private_directory(path)
            self._has_directory = True
        if not self._has_plan:
            write_atomically(f"{path}/plan", journal.encode_entry(self._start_entry) + b"\n")
            self._has_plan = True
        return path


def _highest_number(home: str) -> int:
    """Return the highest run number that may have been used so far."""
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
    """Decode the names of all environment variables in one call, because one call for each of
    dozens of variables would take time in every run that the warden (nacre's daemon) starts."""
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


def _session_saved(outcome: Outcome) -> bool | None:
    """Return `Outcome.session_saved`, or None if no later reply needs it: most commands save the
    state of their session, and a later reply says nothing about that."""
    is_usual = outcome.session_saved and isinstance(outcome.ending, Exited | Killed)
    needless = is_usual and not outcome.session_taken_from
    return None if outcome.session_problem or needless else outcome.session_saved
