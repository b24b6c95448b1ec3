"""Functions for the command line, RPC and MCP that convert a run to JSON and read a part of its
output.

The JSON form of a run is what `nacre ps --json` prints.
"""

import os
from typing import Any, Final

from msgspec import Struct

from nacre.model.events import Stream
from nacre.model.outcome import ending_code, ending_state
from nacre.model.plan import MIB
from nacre.model.requests import Between, Last
from nacre.procfs import processes
from nacre.store.output_range import locate, read_page, read_range
from nacre.store.stored_run import StoredRun
from nacre.text.clean import human_size


def run_to_json(run: StoredRun) -> dict[str, Any]:
    state, path = run.ending, run.path(Stream.OUTPUT)
    return {
        "run": run.name,
        "state": ending_state(state),
        "exit_code": ending_code(state),
        "begun": run.start_entry.time,
        "seconds": round(run.seconds, 3),
        "command": run.start_entry.command,
        "cwd": run.start_entry.cwd,
        "workspace": run.start_entry.workspace,
        "output_bytes": output_size(run),
        "output_file": path if os.path.exists(path) else None,
        "pid": None if run.start_entry.shell is None else run.start_entry.shell.pid,
        "owner": None if run.owner is None else {"pid": run.owner.pid, "kind": run.owner.kind},
        "left_running": [{"pid": each} for each in find_leftovers(run)],
    }


def find_leftovers(run: StoredRun) -> list[int]:
    """Return the pids of the processes that outlived the run's shell and are still running."""
    left = run.end_entry.left_running if run.end_entry else ()
    return [each.pid for each in left if processes.is_same_process(each.pid, each.started)]


def output_size(run: StoredRun) -> int | None:
    sizes = [size for stream in Stream if (size := run.size(stream)) is not None]
    if not sizes and run.end_entry is not None:
        return run.end_entry.output.size
    return sum(sizes) if sizes else None


MAX_PART: Final = MIB  # maximum bytes of a run's output in one response


class OutputPart(Struct, frozen=True, kw_only=True):
    """Part of a run's output, with its position in the complete output."""

    data: bytes
    size: int  # size of the run's complete output, in bytes
    cursor: int  # offset, in the complete output, of the first byte after this part
    complete: bool  # whether the run has ended and this part reaches the end of its output


class PartTooLarge(LookupError):
    """Exception for a requested part of a run's output that is too large for one response; its
    message says what to request instead."""


def read_part(
    run: StoredRun,
    *,
    since: int | None = None,
    first: int | None = None,
    last: int | None = None,
    lines: int | None = None,
    most: int = MAX_PART,
) -> OutputPart:
    """Return a part of a run's output: a range of lines, the last lines, or all of it.

    If `since` is given, the returned part of the output starts at the byte offset `since` and has
    at most `most` bytes. Raises NoSuchRun, PartTooLarge, ValueError, OSError.
    """
    _check(since, first, last, lines, most)
    over = run.ending is not None
    with run.open() as source:
        size = source.seek(0, os.SEEK_END)
        if since is not None:
            start = min(since, size)
            data = read_page(source, start, most, more_follows=not over)
        else:
            part = Last(lines=lines) if lines is not None else Between(first=first or 1, last=last)
            start, end = locate(source, part, run.line_index())
            if end - start > most:
                raise PartTooLarge(
                    f"these lines of {run.name} have more than {human_size(most)} (all lines: "
                    f"{human_size(size)}); ask for fewer lines, or page with since"
                )
            data = b"".join(read_range(source, start, end))
    cursor = start + len(data)
    return OutputPart(data=data, size=size, cursor=cursor, complete=over and cursor >= size)


def _check(
    since: int | None, first: int | None, last: int | None, lines: int | None, most: int
) -> None:
    ranges = first is not None or last is not None
    if (since is not None) + (lines is not None) + ranges > 1:
        raise ValueError("since, lines and from/to exclude each other; choose one")
    for name, value, least in (
        ("since", since, 0),
        ("lines", lines, 0),
        ("from", first, 1),
        ("to", last, 1),
        ("most", most, 1),
    ):
        if value is not None and value < least:
            raise ValueError(f"{name} is {value}; it must be {least} or more")
