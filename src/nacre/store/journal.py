"""The journal of a workspace: a line when a run begins, a line when it has ended.

    journal/<workspace>/<block>.jsonl

A thousand numbers are a block, and all lines of a run are in its block's file: so a run is found
without an index, and old ones go by removing a file. Lines are written by whoever runs the
command, the last one before its answer is given. Small output rides inside; of variables there are
names only.
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
    """A run that is about to start."""

    run: int
    time: float
    workspace: str
    cwd: str
    command: str  # as it was given
    script: str | None = None  # as bash gets it, where that is different
    streams: Streams
    timeout: float | None = None
    variables: list[str] | None = None  # names; None: those that its parent had
    workspace_key: str = ""  # the key of its workspace, whose name may be no text
    owner: str = ""  # who runs it, see `owner`
    open_stdin: bool = False  # it can be written to
    tag: int | None = None  # by which everything that it has started is known
    # What is only known of a run that has a directory, and stands there.
    shell: Survivor | None = None
    detached_at: float | None = None  # when it was handed back while it ran
    job: bool = False  # and that it is one of its contract's jobs
    completion_line: CompletionLine | None = None


class StoredStream(
    Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"hidden": "marks"}
):
    """One stream of a run that has ended: how much it was, and where it is."""

    size: int = 0
    lines: int = 0
    data: bytes | None = None  # all of it; None: in the run's directory, or nowhere
    problem: str | None = None  # why that is not all of it
    hidden: tuple[tuple[int, int], ...] = ()  # what of the file are words of ours

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
    terminated: tuple[Survivor, ...] = ()  # what was ended with it
    out_of_memory: bool = False


encode_entry = msgspec.json.Encoder().encode


def decode_entry(line: bytes) -> StartEntry | EndEntry:
    """Raises msgspec.MsgspecError for half a line."""
    found: StartEntry | EndEntry = _decoder().decode(line)
    return found


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[StartEntry | EndEntry]:
    return msgspec.json.Decoder(
        StartEntry | EndEntry
    )  # not while importing: who only writes needs none


def journal_path(home: str, place: str, run: int) -> str:
    """`place` is the key of the workspace."""
    return _path(home, place, run // RUNS_PER_FILE)


@lru_cache(maxsize=16)
def _path(home: str, place: str, block: int) -> str:
    return f"{home}/journal/{place}/{block:06}.jsonl"


@lru_cache(maxsize=16)
def workspace_key(workspace: bytes) -> str:
    return digest(workspace)


def find_entries(home: str, place: str, run: int) -> tuple[StartEntry | None, EndEntry | None]:
    """What is written of a run in the workspace with this key. Raises OSError when it cannot be
    read."""
    begun: StartEntry | None = None
    ended: EndEntry | None = None
    for line in _read_run_lines(journal_path(home, place, run), run):
        try:
            found = decode_entry(line)
        except msgspec.MsgspecError:
            continue  # cut off by a full disk
        if isinstance(found, StartEntry):
            begun = found
        else:
            ended = found
    return begun, ended


def _read_run_lines(path: str, run: int) -> Iterator[bytes]:
    """The lines of one run, read a block at a time."""
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
