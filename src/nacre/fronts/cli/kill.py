"""`nacre kill`: end runs and all that they have started, or send them a signal."""

import argparse
import signal

from nacre.fronts.cli.common import complain, remark
from nacre.fronts.cli.runs import problem, reach, said
from nacre.reach import Reach, checked
from nacre.refusals import Refused
from nacre.signals import signal_number


def main(options: argparse.Namespace) -> int:
    try:
        number = None if options.signal is None else signal_number(options.signal)
        runs = reach(options.cwd)
    except (ValueError, OSError) as error:
        complain(str(error))
        return 2
    failed = 0
    for name in options.run:
        try:
            if number is not None:
                checked(runs.signal(name, number).wait())
            else:
                _end(runs, name, options.grace)
        except (LookupError, OSError, Refused) as error:
            complain(problem(error))
            failed = 1
    return failed


def _end(runs: Reach, name: str, grace: float) -> None:
    """Raises OSError when something is left."""
    before = runs.find(name)
    outcome = runs.end(name, signal.SIGTERM, grace).wait()
    if outcome is None:
        raise OSError(f"something of {name} could not be killed; nacre ps shows it")
    already = before.state is not None and not (before.ended and before.ended.left_running)
    remark(f"{said(runs.find(name))}{', before this' if already else ''}")
