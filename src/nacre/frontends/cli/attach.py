"""`nacre attach`: print a run's output as it arrives, and copy stdin to the run.

Ctrl-C ends `nacre attach`; the run continues.
"""

import argparse
import os
import threading
from typing import Final

from nacre.frontends.cli.common import pause, print_note, print_problem, write_all
from nacre.frontends.cli.exit_codes import waiter_exit_code
from nacre.frontends.cli.run_access import open_access
from nacre.frontends.cli.run_formatting import describe_error, describe_run
from nacre.model.refusals import Refused
from nacre.runs.access import RunAccess, raise_if_rejected
from nacre.store import stored_run
from nacre.store.stored_run import StoredRun

_PAUSE: Final = 0.05
_PIECE: Final = 64 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show a run's output live, and forward stdin to the run, with its end of file. "
        "Ctrl-C detaches; the run is not affected."
    )
    parser.add_argument("run", metavar="ID", help="run id, 17 or r17")
    parser.add_argument("--no-stdin", action="store_true", help="only show the output")
    parser.add_argument(
        "--cwd", metavar="D", help="directory of the workspace (default: the current one)"
    )


def main(options: argparse.Namespace) -> int:
    try:
        runs = open_access(options.cwd)
        run = runs.find(options.run)
        if run.ending is None and not options.no_stdin:
            threading.Thread(target=_copy_stdin, args=(runs, run), daemon=True).start()
        show_output(run, runs.workspace)
        run = runs.find(options.run)
    except KeyboardInterrupt:
        print_note(
            f"\n[detached; {options.run} is still running, nacre kill {options.run} ends it]"
        )
        return 130
    except (LookupError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        print_problem(describe_error(error))
        return 1
    print_note(describe_run(run))
    return waiter_exit_code(run.ending)


def show_output(run: StoredRun, workspace: bytes) -> None:
    """Print the run's output so far, then all new output until the run ends."""
    for data in stored_run.follow_output(run, workspace):
        if data:
            write_all(1, data)
        else:
            pause(_PAUSE)


def _copy_stdin(runs: RunAccess, run: StoredRun) -> None:
    """Copy stdin of this process to the run, until EOF or until the run accepts no more input."""
    try:
        while data := os.read(0, _PIECE):
            raise_if_rejected(runs.write(run.name, data, eof=False, wait_for_room=True).wait())
        raise_if_rejected(runs.write(run.name, b"", eof=True, wait_for_room=True).wait())
    except (OSError, LookupError):
        return
    except Refused as refused:
        if data:
            print_problem(str(refused))
