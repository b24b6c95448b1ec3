"""`nacre wait`: wait until a run has ended, and exit with the run's exit code."""

import argparse

from nacre.frontends.cli.common import print_note, print_problem
from nacre.frontends.cli.exit_codes import TIMEOUT_EXIT, waiter_exit_code
from nacre.frontends.cli.run_access import open_access
from nacre.frontends.cli.run_formatting import describe_error, describe_run
from nacre.frontends.cli.shared_arguments import seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="run id, 17 or r17")
    parser.add_argument(
        "--timeout", type=seconds, metavar="S", help="seconds to wait at most; then exit with 124"
    )
    parser.add_argument(
        "--cwd", metavar="D", help="directory of the workspace (default: the current one)"
    )


def main(options: argparse.Namespace) -> int:
    try:
        runs = open_access(options.cwd)
        outcome = runs.wait(options.run, options.timeout).wait()
        run = runs.find(options.run)
    except (LookupError, OSError) as error:
        print_problem(describe_error(error))
        return 1
    if outcome is None:
        print_problem(f"{run.name} is still running")
        return TIMEOUT_EXIT
    print_note(describe_run(run))
    return waiter_exit_code(outcome.ending)
