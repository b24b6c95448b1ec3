"""`nacre wait`: until a run has ended; exits with its code."""

import argparse

from nacre.fronts.cli.common import complain, remark
from nacre.fronts.cli.run import TIMED_OUT
from nacre.fronts.cli.runs import exit_code, problem, reach, said


def main(options: argparse.Namespace) -> int:
    try:
        runs = reach(options.cwd)
        outcome = runs.wait(options.run, options.timeout).wait()
        run = runs.find(options.run)
    except (LookupError, OSError) as error:
        complain(problem(error))
        return 1
    if outcome is None:
        complain(f"{run.name} still runs; nothing was done to it")
        return TIMED_OUT
    remark(said(run))
    return exit_code(outcome.ending)
