"""`nacre attach`: a run's output as it comes, and our stdin for it. Ctrl-C lets go of it."""

import argparse
import os
import threading
from typing import Final

from nacre.fronts.cli.common import complain, remark, rest, write_all
from nacre.fronts.cli.runs import exit_code, problem, reach, said
from nacre.reach import Reach, checked
from nacre.refusals import Refused
from nacre.store import reading
from nacre.store.reading import Run

_PAUSE: Final = 0.05
_PIECE: Final = 64 * 1024


def main(options: argparse.Namespace) -> int:
    try:
        runs = reach(options.cwd)
        run = runs.find(options.run)
        if run.state is None and not options.no_stdin:
            threading.Thread(target=_feed, args=(runs, run), daemon=True).start()
        shown(run, runs.workspace)
        run = runs.find(options.run)
    except KeyboardInterrupt:
        remark(f"\n[detached; {options.run} goes on, nacre kill {options.run} ends it]")
        return 130
    except (LookupError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        complain(problem(error))
        return 1
    remark(said(run))
    return exit_code(run.state)


def shown(run: Run, workspace: bytes) -> None:
    """Everything that there is, and that is yet to come."""
    for data in reading.follow(run, workspace):
        if data:
            write_all(1, data)
        else:
            rest(_PAUSE)


def _feed(runs: Reach, run: Run) -> None:
    """What we read is for the run, as long as it wants it."""
    try:
        while data := os.read(0, _PIECE):
            checked(runs.write(run.name, data, eof=False, waits=True).wait())
        checked(runs.write(run.name, b"", eof=True, waits=True).wait())
    except (OSError, LookupError):
        return
    except Refused as refused:
        if data:
            complain(str(refused))
