"""Which runs there are: those that live, and the last of those that have ended.

A run that was handed back while it ran has a directory, and an `outcome` in it once it has ended;
so those that live are found by looking at names. All others are in the last lines of the journal.
"""

import os
import re
from contextlib import suppress
from typing import Final

import msgspec

from nacre import proc
from nacre.store import journal
from nacre.store.home import home
from nacre.store.journal import Begun, Ended
from nacre.store.reading import Run, in_directory
from nacre.store.record import runs

_BLOCKS: Final = 3  # that are looked through for what was left running
_LEFT: Final = b'"left_running":['  # in the last line of one that has
_LINE: Final = re.compile(rb'\{"type":"(?:begun|ended)","run":(\d+),')


def listed(workspace: bytes | None, last: int) -> list[Run]:
    """What lives, and then the last so many of what does not; of all workspaces: None. The newest
    first. Raises OSError without a home."""
    found = {run.number: run for run in _recent(workspace, last)}
    found |= {run.number: run for run in unended(workspace)}
    newest = sorted(found.values(), key=lambda run: run.number, reverse=True)
    live = [run for run in newest if run.state is None or _lives_on(run)]
    return [*live, *[run for run in newest if run not in live][:last]]


def _lives_on(run: Run) -> bool:
    """Whether something that it has left running still runs."""
    for each in run.ended.left_running if run.ended is not None else ():
        process = proc.look(each.pid)
        if process is not None and process.alive and process.started == each.started:
            return True
    return False


def run_of(pid: int, workspace: bytes) -> str | None:
    """The run of this workspace that has started a process, if it is one of those that live."""
    tag = proc.soft_locks(pid)
    try:
        known = listed(workspace, 0)
    except OSError:
        return None
    return next((run.name for run in known if tag is not None and run.begun.tag == tag), None)


def unended(workspace: bytes | None) -> list[Run]:
    """Runs with a directory whose end is nowhere: they live, or nobody has seen it."""
    return [run for run in unfinished(workspace) if run.ended is None]


def unfinished(workspace: bytes | None) -> list[Run]:
    """Runs with a directory that has no outcome; it may be about to have one, or the journal has
    it."""
    place = home()
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(runs(place)) as entries:
        for entry in entries:
            if entry.name[1:].isdigit() and not os.path.exists(f"{entry.path}/outcome"):
                found.append(int(entry.name[1:]))
    made = []
    for number in found:
        run = _of_directory(number, workspace)
        if run is not None and run.ended is None:
            ended = journal.find(place, run.begun.place, number)[1]
            run = msgspec.structs.replace(run, ended=ended)
        if run is not None:
            made.append(run)
    return made


def jobs(workspace: bytes, last: int) -> list[Run]:
    """The last so many jobs of contracts, the newest first."""
    numbers: list[int] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        numbers = [int(name[1:]) for name in os.listdir(runs(home())) if name[1:].isdigit()]
    found: list[Run] = []
    for number in sorted(numbers, reverse=True):
        run = _of_directory(number, workspace)
        if run is not None and run.begun.job:
            found.append(run)
            if len(found) == last:
                break
    return found


def _of_directory(number: int, workspace: bytes | None) -> Run | None:
    directory = f"{runs(home())}/r{number}"
    begun, ended = in_directory(directory)
    if begun is None or (workspace is not None and begun.place != journal.key(workspace)):
        return None
    return Run(number=number, begun=begun, ended=ended, directory=directory)


def workspace_of(number: int) -> str | None:
    """To which workspace a run belongs, for whoever looks for it in another."""
    return next((run.begun.workspace for run in _anywhere(number)), None)


def _anywhere(number: int) -> list[Run]:
    place, found = home(), []
    if (run := _of_directory(number, None)) is not None:
        found.append(run)
    with suppress(OSError):
        for key in os.listdir(f"{place}/journal"):
            begun, ended = journal.find(place, key, number)
            if begun is not None:
                directory = f"{runs(place)}/r{number}"
                found.append(Run(number=number, begun=begun, ended=ended, directory=directory))
    return found


def _recent(workspace: bytes | None, last: int) -> list[Run]:
    place = f"{home()}/journal"
    keys = [journal.key(workspace)] if workspace is not None else []
    if workspace is None:
        with suppress(FileNotFoundError):
            keys = os.listdir(place)
    found: list[Run] = []
    for key in keys:
        found += _recent_of(f"{place}/{key}", last)
    return sorted(found, key=lambda run: run.number, reverse=True)


def _recent_of(directory: str, last: int) -> list[Run]:
    """Of one workspace, from the last blocks of its journal."""
    blocks: list[str] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        blocks = sorted(os.listdir(directory), reverse=True)
    found: list[Run] = []
    for place, block in enumerate(blocks):
        if len(found) >= last and place >= _BLOCKS:
            break
        found += _of_block(f"{directory}/{block}", last)
    return found


def _of_block(path: str, last: int) -> list[Run]:
    lines: dict[int, list[bytes]] = {}
    with suppress(OSError), open(path, "rb") as file:
        for line in file:
            if said := _LINE.match(line):
                lines.setdefault(int(said[1]), []).append(line)
                if len(lines) > 2 * last + 64:
                    _forget_ended(lines, last)
    made = (_made(number, lines[number]) for number in sorted(lines, reverse=True))
    return [run for run in made if run is not None]


def _forget_ended(lines: dict[int, list[bytes]], last: int) -> None:
    """Keep the newest, and all that have not ended."""
    for number in sorted(lines)[:-last]:
        if len(lines[number]) > 1 and not any(_LEFT in line for line in lines[number]):
            del lines[number]


def _made(number: int, lines: list[bytes]) -> Run | None:
    begun: Begun | None = None
    ended: Ended | None = None
    for line in lines:
        with suppress(msgspec.MsgspecError):  # cut off by a full disk
            said = journal.decode(line)
            if isinstance(said, Begun):
                begun = said
            else:
                ended = said
    if begun is None:
        return None
    directory = f"{runs(home())}/r{number}"
    in_it = in_directory(directory)
    return Run(number=number, begun=in_it[0] or begun, ended=ended or in_it[1], directory=directory)
