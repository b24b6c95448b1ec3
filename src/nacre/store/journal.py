"""Journal of a workspace: one line when a run starts, and one line when the run has ended.

    journal/<workspace>/<block>.jsonl

Each journal file holds the lines of a thousand run numbers (a block), so a run is found without an
index, and old runs are deleted by deleting a file. The process that executes a run writes both
journal lines of the run; the line about the end is written before the caller gets the outcome.
Small output is stored in the journal itself. The journal has the names of environment variables,
but not their values.
"""

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from nacre.model.ids import digest
from nacre.model.outcome import Ending, Survivor
from nacre.model.plan import CompletionLine, Streams

RUNS_PER_FILE: Final = 1000
_READ: Final = 1024 * 1024


class StartEntry(
    Struct,
    frozen=True,
    kw_only=True,
    tag="begun",
    omit_defaults=True,
    rename={"workspace_key": "place", "detached_at": "handed", "completion_line": "epitaph"},
):
    """Journal line that is written for a run when it starts."""

    run: int
    time: float
    workspace: str
    cwd: str
    command: str  # command as the caller wrote it
    script: str | None = None  # script that bash gets; None: the same as `command`
    streams: Streams
    timeout: float | None = None
    # names of the command's environment variables; None: those of the process that executes the run
    variables: list[str] | None = None
    # digest of the workspace's path, because the path itself may be invalid UTF-8
    workspace_key: str = ""
    owner: str = ""  # process that executes the run, as text; see `store.run_owner`
    open_stdin: bool = False  # whether the run's stdin accepts input
    tag: int | None = None  # number that marks every process that the run started
    # The fields `shell`, `detached_at`, `job` and `completion_line` are set only in the file `plan`
    # in the directory of a detached run.
    shell: Survivor | None = None
    detached_at: float | None = None  # Unix time at which the run was detached
    job: bool = False  # whether the run was detached as a background job
    completion_line: CompletionLine | None = None


class StoredStream(
    Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"hidden": "marks"}
):
    """Size and location of one output stream of an ended run."""

    size: int = 0
    lines: int = 0
    # complete output of the stream; None: the output is in the run's directory, or it was not
    # stored
    data: bytes | None = None
    problem: str | None = None  # why the stored output is incomplete; None: it is complete
    # byte ranges of the output file that contain text from nacre, not from the command
    hidden: tuple[tuple[int, int], ...] = ()

    @property
    def complete(self) -> bool:
        return self.problem is None


class EndEntry(
    Struct,
    frozen=True,
    kw_only=True,
    tag="ended",
    omit_defaults=True,
    rename={"terminated": "put_down"},
):
    run: int
    time: float
    ending: Ending
    seconds: float
    output: StoredStream
    errors: StoredStream | None = None
    left_running: tuple[Survivor, ...] = ()
    # processes that outlived the run's shell and that nacre ended
    terminated: tuple[Survivor, ...] = ()
    out_of_memory: bool = False
    # whether a later command had used the session of this detached command when it ended
    session_taken: bool = False
    # The fields below are as in `Outcome`; `session_saved` is None if there is nothing to say.
    session_saved: bool | None = None
    session_taken_from: str = ""
    session_errexit: bool = False
    pipelines: tuple[tuple[int, ...], ...] = ()


encode_entry = msgspec.json.Encoder().encode


def decode_entry(line: bytes) -> StartEntry | EndEntry:
    """Parse one line of the journal. Raises msgspec.MsgspecError for an incomplete line."""
    found: StartEntry | EndEntry = _decoder().decode(line)
    return found


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[StartEntry | EndEntry]:
    # The decoder of journal lines is created lazily, because a process that only writes to the
    # journal needs no decoder.
    return msgspec.json.Decoder(StartEntry | EndEntry)


def journal_path(home: str, place: str, run: int) -> str:
    """Return the path of the journal file that contains a run; `place` is the key of the run's
    workspace."""
    return _path(home, place, run // RUNS_PER_FILE)


@lru_cache(maxsize=16)
def _path(home: str, place: str, block: int) -> str:
    return f"{home}/journal/{place}/{block:06}.jsonl"


@lru_cache(maxsize=16)
def workspace_key(workspace: bytes) -> str:
    return digest(workspace)


def find_entries(home: str, place: str, run: int) -> tuple[StartEntry | None, EndEntry | None]:
    """Return the start entry and the end entry of a run, or None for each that the journal does not
    have.

    `place` is the key of the workspace whose journal is searched. Raises OSError if the journal
    cannot be read.
    """
    begun: StartEntry | None = None
    ended: EndEntry | None = None
    for line in _read_run_lines(journal_path(home, place, run), run):
        try:
            found = decode_entry(line)
        except msgspec.MsgspecError:
            continue  # a full disk may have cut off the journal line
        if isinstance(found, StartEntry):
            begun = found
        else:
            ended = found
    return begun, ended


def _read_run_lines(path: str, run: int) -> Iterator[bytes]:
    """Yield the journal lines of one run, reading the journal file in large pieces."""
    marks = tuple(b'{"type":"%s","run":%d,' % (kind, run) for kind in (b"begun", b"ended"))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return
    rest = b""
    try:
        while block := os.read(fd, _READ):
            *lines, rest = (rest + block).split(b"\n")
            yield from (line for line in lines if line.startswith(marks))
    finally:
        os.close(fd)
