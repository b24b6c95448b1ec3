"""A run as data, as `nacre ps --json` prints it, and parts of its output."""

import os
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from nacre import proc
from nacre.events import Stream
from nacre.outcome import code_of, state_of
from nacre.plan import MIB
from nacre.store import reading
from nacre.store.reading import Run
from nacre.text import human_size, without_cut_end


def as_json(run: Run) -> dict[str, Any]:
    state, path = run.state, run.path(Stream.OUTPUT)
    return {
        "run": run.name,
        "state": state_of(state),
        "exit_code": code_of(state),
        "begun": run.begun.time,
        "seconds": round(run.seconds, 3),
        "command": run.begun.command,
        "cwd": run.begun.cwd,
        "workspace": run.begun.workspace,
        "output_bytes": size_of(run),
        "output_file": path if os.path.exists(path) else None,
        "pid": None if run.begun.shell is None else run.begun.shell.pid,
        "owner": None if run.owner is None else {"pid": run.owner.pid, "kind": run.owner.kind},
        "left_running": [{"pid": each} for each in left_of(run)],
    }


def left_of(run: Run) -> list[int]:
    """What it has left running, and still runs."""
    found = []
    for each in run.ended.left_running if run.ended else ():
        process = proc.look(each.pid)
        if process is not None and process.alive and process.started == each.started:
            found.append(each.pid)
    return found


def size_of(run: Run) -> int | None:
    sizes = [size for stream in Stream if (size := run.size(stream)) is not None]
    if not sizes and run.ended is not None:
        return run.ended.output.size
    return sum(sizes) if sizes else None


MOST: Final = MIB  # bytes of an output that are given at once


class Part(Struct, frozen=True, kw_only=True):
    """Some of a run's output."""

    data: bytes
    size: int  # of all of it
    cursor: int  # the byte after this part
    over: bool  # the run has ended, and this is the last of it


class TooMuch(LookupError):
    """What was asked for is more than is given at once; the message says what to ask instead."""


def part_of(
    run: Run,
    *,
    since: int | None = None,
    first: int | None = None,
    last: int | None = None,
    lines: int | None = None,
    most: int = MOST,
) -> Part:
    """Its output from a byte on (as much as is given at once), some lines, the last lines, or all
    of it. Raises NoSuchRun, TooMuch, ValueError, OSError."""
    _check(since, first, last, lines, most)
    over = run.state is not None
    with run.open() as source:
        size = source.seek(0, os.SEEK_END)
        if since is not None:
            start = source.seek(min(since, size))
            data = reading.read_up_to(source, most)
            if not over or start + len(data) < size:
                data = without_cut_end(data) or data  # the rest of a character comes with the next
        elif lines is not None:
            data = _gathered(run, reading.tail(source, lines), most, size)
            start = source.seek(0, os.SEEK_CUR) - len(data)  # it may have grown meanwhile
        else:
            index = run.index()
            start = reading.line_start(source, first or 1, index)
            found = reading.lines(source, first or 1, last, index)
            data = _gathered(run, found, most, size)
    cursor = start + len(data)
    return Part(data=data, size=size, cursor=cursor, over=over and cursor >= size)


def _check(
    since: int | None, first: int | None, last: int | None, lines: int | None, most: int
) -> None:
    ranges = first is not None or last is not None
    if (since is not None) + (lines is not None) + ranges > 1:
        raise ValueError("since, lines and from/to do not go together; choose one")
    for name, value, least in (
        ("since", since, 0),
        ("lines", lines, 0),
        ("from", first, 1),
        ("to", last, 1),
        ("most", most, 1),
    ):
        if value is not None and value < least:
            raise ValueError(f"{name} is {value}; it must be {least} or more")


def _gathered(run: Run, blocks: Iterator[bytes], most: int, size: int) -> bytes:
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > most:
            raise TooMuch(
                f"these lines of {run.name} have more than {human_size(most)} (all of it: "
                f"{human_size(size)}); ask for fewer, or go through it with since, byte by byte"
            )
    return bytes(data)
