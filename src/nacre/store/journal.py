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

from nacre.digest import digest
from nacre.outcome import Ending, Survivor
from nacre.plan import Epitaph, Streams

BLOCK: Final = 1000
_READ: Final = 1024 * 1024


class Begun(Struct, frozen=True, kw_only=True, tag="begun", omit_defaults=True):
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
    place: str = ""  # the key of its workspace, whose name may be no text
    owner: str = ""  # who runs it, see `owner`
    open_stdin: bool = False  # it can be written to
    tag: int | None = None  # by which everything that it has started is known
    # What is only known of a run that has a directory, and stands there.
    shell: Survivor | None = None
    handed: float | None = None  # when it was handed back while it ran
    job: bool = False  # and that it is one of its contract's jobs
    epitaph: Epitaph | None = None


class Stored(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stream of a run that has ended: how much it was, and where it is."""

    size: int = 0
    lines: int = 0
    data: bytes | None = None  # all of it; None: in the run's directory, or nowhere
    problem: str | None = None  # why that is not all of it
    marks: tuple[tuple[int, int], ...] = ()  # what of the file are words of ours

    @property
    def whole(self) -> bool:
        return self.problem is None


class Ended(Struct, frozen=True, kw_only=True, tag="ended", omit_defaults=True):
    run: int
    time: float
    ending: Ending
    seconds: float
    output: Stored
    errors: Stored | None = None
    left_running: tuple[Survivor, ...] = ()
    put_down: tuple[Survivor, ...] = ()  # what was ended with it
    out_of_memory: bool = False


encode = msgspec.json.Encoder().encode


def decode(line: bytes) -> Begun | Ended:
    """Raises MsgspecError for half a line."""
    found: Begun | Ended = _decoder().decode(line)
    return found


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[Begun | Ended]:
    return msgspec.json.Decoder(Begun | Ended)  # not while importing: who only writes needs none


def path_of(home: str, place: str, run: int) -> str:
    """`place` is the key of the workspace."""
    return _path(home, place, run // BLOCK)


@lru_cache(maxsize=16)
def _path(home: str, place: str, block: int) -> str:
    return f"{home}/journal/{place}/{block:06}.jsonl"


@lru_cache(maxsize=16)
def key(workspace: bytes) -> str:
    return digest(workspace)


def find(home: str, place: str, run: int) -> tuple[Begun | None, Ended | None]:
    """What is written of a run in the workspace with this key. Raises OSError when it cannot be
    read."""
    begun: Begun | None = None
    ended: Ended | None = None
    for line in _lines_of(path_of(home, place, run), run):
        try:
            found = decode(line)
        except msgspec.MsgspecError:
            continue  # cut off by a full disk
        if isinstance(found, Begun):
            begun = found
        else:
            ended = found
    return begun, ended


def _lines_of(path: str, run: int) -> Iterator[bytes]:
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
