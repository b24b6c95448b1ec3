"""`nacre ps`: print the runs of a workspace as a table or as JSON."""

import argparse
import os
import shutil
import sys
import time
from typing import Final

import msgspec

from nacre.frontends.cli.common import (
    escape_controls,
    find_current_workspace,
    pause,
    print_line,
    print_problem,
    write_all,
)
from nacre.frontends.cli.run_formatting import describe_ending, format_age, short_path
from nacre.frontends.cli.shared_arguments import lines
from nacre.frontends.run_json import find_leftovers, output_size, run_to_json
from nacre.model.outcome import ending_code
from nacre.store.listing import list_runs
from nacre.store.stored_run import StoredRun
from nacre.text.clean import human_size

_PAUSE: Final = 1.0
_HEADER: Final = ("ID", "AGE", "STATE", "OUTPUT", "COMMAND", "DIRECTORY")
_NARROW: Final = 20  # minimum width of the table's command column, in characters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="list the runs of all workspaces")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--watch", action="store_true", help="refresh every second, until Ctrl-C")
    parser.add_argument(
        "--lines",
        "-n",
        type=lines,
        default=20,
        metavar="N",
        help="number of ended runs (default 20)",
    )
    parser.add_argument(
        "--cwd", metavar="D", help="directory of the workspace (default: the current one)"
    )


def main(options: argparse.Namespace) -> int:
    try:
        if options.watch:
            return _watch(options)
        _print_table(options)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        print_problem(str(error))
        return 1
    return 0


def _list_runs(options: argparse.Namespace) -> list[StoredRun]:
    return list_runs(None if options.all else find_current_workspace(options.cwd), options.lines)


def _print_table(options: argparse.Namespace) -> None:
    runs = _list_runs(options)
    if options.json:
        print_line(msgspec.json.encode([run_to_json(run) for run in runs]).decode())
        return
    lines = _table(runs, colour=_use_colour())
    print_line("\n".join(lines) if runs else _empty_message(options))


def _empty_message(options: argparse.Namespace) -> str:
    return "no runs" if options.all else "no runs in this workspace; nacre ps --all shows all"


def _use_colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _watch(options: argparse.Namespace) -> int:
    """Print the table of runs every second, until Ctrl-C or until the reader of stdout exits."""
    while True:
        runs = _list_runs(options)
        lines = _table(runs, colour=_use_colour()) if runs else [_empty_message(options)]
        height = shutil.get_terminal_size().lines
        clear = b"\x1b[H\x1b[2J" if sys.stdout.isatty() else b""
        write_all(1, clear + "\n".join(lines[: max(2, height - 1)]).encode() + b"\n")
        pause(_PAUSE)


def _table(runs: list[StoredRun], *, colour: bool) -> list[str]:
    rows = [_row(run) for run in runs]
    widths = [max(len(row[i]) for row in (_HEADER, *rows)) for i in range(4)]
    room = shutil.get_terminal_size().columns - sum(widths) - 2 * 5
    command, directory = (max(len(row[i]) for row in (_HEADER, *rows)) for i in (4, 5))
    # If the table of runs is too wide for the terminal, the directory column gets about a third of
    # the space or is left out, and the command column gets the rest.
    if command + directory > room:
        directory = min(directory, max(12, room // 3)) if room > 2 * _NARROW else 0
        command = min(command, max(_NARROW, room - directory))
    lines = []
    for row, run in zip((_HEADER, *rows), (None, *runs), strict=True):
        name, age, state, size = (
            text.rjust(width) if i in (1, 3) else text.ljust(width)
            for i, (text, width) in enumerate(zip(row[:4], widths, strict=True))
        )
        line = (
            f"{name}  {age}  {state}  {size}  {_truncate(row[4], command).ljust(command)}"
            f"  {_truncate_front(row[5], directory) if directory else ''}"
        ).rstrip()
        lines.append(_colour_line(line, run) if colour else line)
    return lines


def _colour_line(line: str, run: StoredRun | None) -> str:
    if run is None:
        return f"\x1b[2m{line}\x1b[0m"
    if run.ending is None:
        return f"\x1b[1m{line}\x1b[0m"
    return line if ending_code(run.ending) == 0 else f"\x1b[31m{line}\x1b[0m"


def _row(run: StoredRun) -> tuple[str, ...]:
    left, size = len(find_leftovers(run)), output_size(run)
    return (
        run.name,
        format_age(time.time() - run.start_entry.time),
        describe_ending(run.ending) + (f" +{left}" if left else ""),
        "-" if size is None else human_size(size),
        escape_controls(" ".join(run.start_entry.command.split())),
        escape_controls(short_path(run.start_entry.cwd)),
    )


def _truncate(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _truncate_front(text: str, width: int) -> str:
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"
