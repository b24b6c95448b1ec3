"""List of runs: all live runs, and the most recent of the ended runs.

A detached run has a directory, which gets a file `outcome` when the run has ended, so file names
alone show which detached runs may be alive. To find recent runs that were not detached, nacre reads
the last lines of the journal.
"""

import os
import re
from contextlib import suppress
from typing import Final

import msgspec

from nacre.procfs import processes
from nacre.store import journal
from nacre.store.journal import EndEntry, StartEntry
from nacre.store.run_record import runs_directory
from nacre.store.state_dir import state_dir
from nacre.store.stored_run import StoredRun, read_run_directory

# number of newest journal files that are always searched for runs with leftover processes
_MIN_FILES: Final = 3
# part of the journal line that records the end of a run with leftover processes
_LEFTOVER_MARK: Final = b'"left_running":['
_LINE: Final = re.compile(rb'\{"type":"(?:begun|ended)","run":(\d+),')


def list_runs(workspace: bytes | None, last: int) -> list[StoredRun]:
    """Return all live runs, then at most `last` ended runs, each group with the newest run first.

    An ended run counts as live while one of its leftover processes still runs. If `workspace` is
    None, runs of all workspaces are listed. Raises OSError if the user has no home directory.
    """
    found = {run.number: run for run in _list_recent(workspace, last)}
    found |= {run.number: run for run in list_unended(workspace)}
    newest = sorted(found.values(), key=lambda run: run.number, reverse=True)
    live = [run for run in newest if run.ending is None or _has_leftovers(run)]
    return [*live, *[run for run in newest if run not in live][:last]]


def _has_leftovers(run: StoredRun) -> bool:
    """Return whether a leftover process of the run is still running."""
    left = run.end_entry.left_running if run.end_entry is not None else ()
    return any(processes.is_same_process(each.pid, each.started) for each in left)


def find_run_of_pid(pid: int, workspace: bytes) -> str | None:
    """Return the name of the live run in a workspace that started the process `pid`, or None if no
    run of the workspace did."""
    tag = processes.soft_locks(pid)
    try:
        known = list_runs(workspace, 0)
    except OSError:
        return None
    return next((run.name for run in known if tag is not None and run.start_entry.tag == tag), None)


def list_unended(workspace: bytes | None) -> list[StoredRun]:
    """Return the runs that have a directory but no end entry in the directory or the journal.

    A run without an end entry is alive, or no process has recorded its end.
    """
    return [run for run in list_without_outcome(workspace) if run.end_entry is None]


def list_without_outcome(workspace: bytes | None) -> list[StoredRun]:
    """Return the runs whose directory has no file `outcome`.

    Even a run without a file `outcome` may have ended: the file may be about to be written, or the
    end entry may be in the journal only.
    """
    place = state_dir()
    found = []
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(runs_directory(place)) as entries,
    ):
        for entry in entries:
            if entry.name[1:].isdigit() and not os.path.exists(f"{entry.path}/outcome"):
                found.append(int(entry.name[1:]))
    runs = []
    for number in found:
        run = _read_run_directory(number, workspace)
        if run is not None and run.end_entry is None:
            ended = journal.find_entries(place, run.start_entry.workspace_key, number)[1]
            run = msgspec.structs.replace(run, end_entry=ended)
        if run is not None:
            runs.append(run)
    return runs


def list_jobs(workspace: bytes, last: int) -> list[StoredRun]:
    """Return at most `last` runs that were detached as background jobs, the newest first."""
    numbers: list[int] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        numbers = [
            int(name[1:]) for name in os.listdir(runs_directory(state_dir())) if name[1:].isdigit()
        ]
    found: list[StoredRun] = []
    for number in sorted(numbers, reverse=True):
        run = _read_run_directory(number, workspace)
        if run is not None and run.start_entry.job:
            found.append(run)
            if len(found) == last:
                break
    return found


def _read_run_directory(number: int, workspace: bytes | None) -> StoredRun | None:
    directory = f"{runs_directory(state_dir())}/r{number}"
    begun, ended = read_run_directory(directory)
    if begun is None or (
        workspace is not None and begun.workspace_key != journal.workspace_key(workspace)
    ):
        return None
    return StoredRun(number=number, start_entry=begun, end_entry=ended, directory=directory)


def find_workspace_of_run(number: int) -> str | None:
    """Search all workspaces for a run that is not in the caller's workspace; return the run's
    workspace, or None."""
    return next((run.start_entry.workspace for run in _find_anywhere(number)), None)


def _find_anywhere(number: int) -> list[StoredRun]:
    place, found = state_dir(), []
    if (run := _read_run_directory(number, None)) is not None:
        found.append(run)
    with suppress(OSError):
        for key in os.listdir(f"{place}/journal"):
            begun, ended = journal.find_entries(place, key, number)
            if begun is not None:
                directory = f"{runs_directory(place)}/r{number}"
                found.append(
                    StoredRun(
                        number=number, start_entry=begun, end_entry=ended, directory=directory
                    )
                )
    return found


def _list_recent(workspace: bytes | None, last: int) -> list[StoredRun]:
    place = f"{state_dir()}/journal"
    keys = [journal.workspace_key(workspace)] if workspace is not None else []
    if workspace is None:
        with suppress(FileNotFoundError):
            keys = os.listdir(place)
    found: list[StoredRun] = []
    for key in keys:
        found += _list_recent_in(f"{place}/{key}", last)
    return sorted(found, key=lambda run: run.number, reverse=True)


def _list_recent_in(directory: str, last: int) -> list[StoredRun]:
    """Return the recent runs of one workspace from the newest files of its journal."""
    blocks: list[str] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        blocks = sorted(os.listdir(directory), reverse=True)
    found: list[StoredRun] = []
    for place, block in enumerate(blocks):
        if len(found) >= last and place >= _MIN_FILES:
            break
        found += _read_journal_file(f"{directory}/{block}", last)
    return found


def _read_journal_file(path: str, last: int) -> list[StoredRun]:
    lines: dict[int, list[bytes]] = {}
    with suppress(OSError), open(path, "rb") as file:
        for line in file:
            if entry := _LINE.match(line):
                lines.setdefault(int(entry[1]), []).append(line)
                if len(lines) > 2 * last + 64:
                    _forget_ended(lines, last)
    runs = (_build_run(number, lines[number]) for number in sorted(lines, reverse=True))
    return [run for run in runs if run is not None]


def _forget_ended(lines: dict[int, list[bytes]], last: int) -> None:
    """Drop the journal lines of older runs that have ended and left no processes running."""
    for number in sorted(lines)[:-last]:
        if len(lines[number]) > 1 and not any(_LEFTOVER_MARK in line for line in lines[number]):
            del lines[number]


def _build_run(number: int, lines: list[bytes]) -> StoredRun | None:
    begun: StartEntry | None = None
    ended: EndEntry | None = None
    for line in lines:
        with suppress(msgspec.MsgspecError):  # a full disk may have cut off the journal line
            entry = journal.decode_entry(line)
            if isinstance(entry, StartEntry):
                begun = entry
            else:
                ended = entry
    if begun is None:
        return None
    directory = f"{runs_directory(state_dir())}/r{number}"
    in_it = read_run_directory(directory)
    return StoredRun(
        number=number,
        start_entry=in_it[0] or begun,
        end_entry=ended or in_it[1],
        directory=directory,
    )
