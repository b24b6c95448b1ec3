"""`nacre kill`: end runs with their whole process trees, or send the runs a signal."""

import argparse
import signal

from nacre.frontends.cli.common import print_note, print_problem
from nacre.frontends.cli.run_access import open_access
from nacre.frontends.cli.run_formatting import describe_error, describe_run
from nacre.frontends.cli.shared_arguments import seconds
from nacre.model.refusals import Refused
from nacre.model.signals import signal_number
from nacre.runs.access import RunAccess, raise_if_rejected


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", nargs="+", help="run id, 17 or r17")
    parser.add_argument("--signal", metavar="S", help="send only this signal: INT, HUP, 9, ...")
    parser.add_argument(
        "--grace",
        type=seconds,
        default=5.0,
        metavar="S",
        help="seconds between TERM and KILL (default 5)",
    )
    parser.add_argument(
        "--cwd", metavar="D", help="directory of the workspace (default: the current one)"
    )


def main(options: argparse.Namespace) -> int:
    try:
        number = None if options.signal is None else signal_number(options.signal)
        runs = open_access(options.cwd)
    except (ValueError, OSError) as error:
        print_problem(str(error))
        return 2
    failed = 0
    for name in options.run:
        try:
            if number is not None:
                raise_if_rejected(runs.signal(name, number).wait())
            else:
                _end_run(runs, name, options.grace)
        except (LookupError, OSError, Refused) as error:
            print_problem(describe_error(error))
            failed = 1
    return failed


def _end_run(runs: RunAccess, name: str, grace: float) -> None:
    """End a run and print how the run ended. Raises OSError when a process of the run survives
    KILL."""
    before = runs.find(name)
    outcome = runs.end(name, signal.SIGTERM, grace).wait()
    if outcome is None:
        raise OSError(f"a process of {name} could not be killed; nacre ps shows the run")
    already = before.ending is not None and not (before.end_entry and before.end_entry.left_running)
    print_note(f"{describe_run(runs.find(name))}{' (it had already ended)' if already else ''}")
