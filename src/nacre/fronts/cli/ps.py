"""`nacre ps`: the runs of a workspace, as a table that people like to look at."""

import argparse
import os
import shutil
import sys
import time
from typing import Final

import msgspec

from nacre.fronts.cli.common import complain, printable, rest, show, write_all
from nacre.fronts.cli.runs import ago, ended, here, short_path
from nacre.fronts.told import as_json, left_of, size_of
from nacre.outcome import code_of
from nacre.store.listing import listed
from nacre.store.reading import Run
from nacre.text import human_size

_PAUSE: Final = 1.0
_HEADER: Final = ("ID", "AGE", "STATE", "OUTPUT", "COMMAND", "DIRECTORY")
_NARROW: Final = 20  # characters that a command has at least


def main(options: argparse.Namespace) -> int:
    try:
        if options.watch:
            return _watch(options)
        _once(options)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        complain(str(error))
        return 1
    return 0


def _runs(options: argparse.Namespace) -> list[Run]:
    return listed(None if options.all else here(options.cwd), options.lines)


def _once(options: argparse.Namespace) -> None:
    runs = _runs(options)
    if options.json:
        show(msgspec.json.encode([as_json(run) for run in runs]).decode())
        return
    lines = _table(runs, colour=_colours())
    show("\n".join(lines) if runs else _nothing(options))


def _nothing(options: argparse.Namespace) -> str:
    return "no runs" if options.all else "no runs in this workspace; nacre ps --all shows all"


def _colours() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _watch(options: argparse.Namespace) -> int:
    """The same again and again, until somebody has seen enough."""
    while True:
        runs = _runs(options)
        lines = _table(runs, colour=_colours()) if runs else [_nothing(options)]
        height = shutil.get_terminal_size().lines
        clear = b"\x1b[H\x1b[2J" if sys.stdout.isatty() else b""
        write_all(1, clear + "\n".join(lines[: max(2, height - 1)]).encode() + b"\n")
        rest(_PAUSE)


def _table(runs: list[Run], *, colour: bool) -> list[str]:
    rows = [_row(run) for run in runs]
    widths = [max(len(row[i]) for row in (_HEADER, *rows)) for i in range(4)]
    room = shutil.get_terminal_size().columns - sum(widths) - 2 * 5
    command, directory = (max(len(row[i]) for row in (_HEADER, *rows)) for i in (4, 5))
    if command + directory > room:  # both are cut, the directory to a third, or away
        directory = min(directory, max(12, room // 3)) if room > 2 * _NARROW else 0
        command = min(command, max(_NARROW, room - directory))
    lines = []
    for row, run in zip((_HEADER, *rows), (None, *runs), strict=True):
        name, age, state, size = (
            text.rjust(width) if i in (1, 3) else text.ljust(width)
            for i, (text, width) in enumerate(zip(row[:4], widths, strict=True))
        )
        line = (
            f"{name}  {age}  {state}  {size}  {_cut(row[4], command).ljust(command)}"
            f"  {_cut_front(row[5], directory) if directory else ''}"
        ).rstrip()
        lines.append(_coloured(line, run) if colour else line)
    return lines


def _coloured(line: str, run: Run | None) -> str:
    if run is None:
        return f"\x1b[2m{line}\x1b[0m"
    if run.state is None:
        return f"\x1b[1m{line}\x1b[0m"
    return line if code_of(run.state) == 0 else f"\x1b[31m{line}\x1b[0m"


def _row(run: Run) -> tuple[str, ...]:
    left, size = len(left_of(run)), size_of(run)
    return (
        run.name,
        ago(time.time() - run.begun.time),
        ended(run.state) + (f" +{left}" if left else ""),
        "-" if size is None else human_size(size),
        printable(" ".join(run.begun.command.split())),
        printable(short_path(run.begun.cwd)),
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _cut_front(text: str, width: int) -> str:
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"
