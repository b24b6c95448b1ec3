"""Which runs there are: those that live, and the last of those that have ended.

A run that was handed back while it ran has a directory, and an `outcome` in it once it has ended;
so those that live are found by looking at names. All others are in the last lines of the journal.
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

_MIN_FILES: Final = 3  # that are looked through for what was left running
_LEFTOVER_MARK: Final = b'"left_running":['  # in the last line of one that has
_LINE: Final = re.compile(rb'\{"type":"(?:begun|ended)","run":(\d+),')


def list_runs(workspace: bytes | None, last: int) -> list[StoredRun]:
    """What lives, and then the last so many of what does not; of all workspaces: None. The newest
    first. Raises OSError without a home."""
    found = {run.number: run for run in _list_recent(workspace, last)}
    found |= {run.number: run for run in list_unended(workspace)}
    newest = sorted(found.values(), key=lambda run: run.number, reverse=True)
    live = [run for run in newest if run.ending is None or _has_leftovers(run)]
    return [*live, *[run for run in newest if run not in live][:last]]


def _has_leftovers(run: StoredRun) -> bool:
    """Whether something that it has left running still runs."""
    left = run.end_entry.left_running if run.end_entry is not None else ()
    return any(processes.is_same_process(each.pid, each.started) for each in left)


def find_run_of_pid(pid: int, workspace: bytes) -> str | None:
    """The run of this workspace that has started a process, if it is one of those that live."""
    tag = processes.soft_locks(pid)
    try:
        known = list_runs(workspace, 0)
    except OSError:
        return None
    return next((run.name for run in known if tag is not None and run.start_entry.tag == tag), None)


def list_unended(workspace: bytes | None) -> list[StoredRun]:
    """Runs with a directory whose end is nowhere: they live, or nobody has seen it."""
    return [run for run in list_without_outcome(workspace) if run.end_entry is None]


def list_without_outcome(workspace: bytes | None) -> list[StoredRun]:
    """Runs with a directory that has no outcome; it may be about to have one, or the journal has
    it."""
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
    """The last so many jobs of contracts, the newest first."""
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
    """To which workspace a run belongs, for whoever looks for it in another."""
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
    """Of one workspace, from the last blocks of its journal."""
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
    """Keep the newest, and all that have not ended."""
    for number in sorted(lines)[:-last]:
        if len(lines[number]) > 1 and not any(_LEFTOVER_MARK in line for line in lines[number]):
            del lines[number]


def _build_run(number: int, lines: list[bytes]) -> StoredRun | None:
    begun: StartEntry | None = None
    ended: EndEntry | None = None
    for line in lines:
        with suppress(msgspec.MsgspecError):  # cut off by a full disk
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
