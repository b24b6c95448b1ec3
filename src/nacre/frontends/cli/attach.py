"""`nacre attach`: a run's output as it comes, and our stdin for it. Ctrl-C lets go of it."""

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
        "Show a run's output as it comes, and give it our stdin, also its end. "
        "Ctrl-C lets go of it; it goes on."
    )
    parser.add_argument("run", metavar="ID", help="17 or r17")
    parser.add_argument("--no-stdin", action="store_true", help="only watch")
    parser.add_argument("--cwd", metavar="D", help="of the workspace there")


def main(options: argparse.Namespace) -> int:
    try:
        runs = open_access(options.cwd)
        run = runs.find(options.run)
        if run.ending is None and not options.no_stdin:
            threading.Thread(target=_copy_stdin, args=(runs, run), daemon=True).start()
        show_output(run, runs.workspace)
        run = runs.find(options.run)
    except KeyboardInterrupt:
        print_note(f"\n[detached; {options.run} goes on, nacre kill {options.run} ends it]")
        return 130
    except (LookupError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        print_problem(describe_error(error))
        return 1
    print_note(describe_run(run))
    return waiter_exit_code(run.ending)


def show_output(run: StoredRun, workspace: bytes) -> None:
    """Everything that there is, and that is yet to come."""
    for data in stored_run.follow_output(run, workspace):
        if data:
            write_all(1, data)
        else:
            pause(_PAUSE)


def _copy_stdin(runs: RunAccess, run: StoredRun) -> None:
    """What we read is for the run, as long as it wants it."""
    try:
        while data := os.read(0, _PIECE):
            raise_if_rejected(runs.write(run.name, data, eof=False, wait_for_room=True).wait())
        raise_if_rejected(runs.write(run.name, b"", eof=True, wait_for_room=True).wait())
    except (OSError, LookupError):
        return
    except Refused as refused:
        if data:
            print_problem(str(refused))
