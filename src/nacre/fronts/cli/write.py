"""`nacre write`: to the stdin of a run that was started with one that stays open."""

import argparse
import os
import sys

from nacre.fronts.cli.common import complain
from nacre.fronts.cli.runs import problem, reach
from nacre.reach import checked
from nacre.refusals import Refused

_PIECE = 64 * 1024


def main(options: argparse.Namespace) -> int:
    try:
        runs = reach(options.cwd)
        runs.find(options.run)
        if options.text is None:
            if not options.eof or not sys.stdin.isatty():
                while data := os.read(0, _PIECE):
                    checked(runs.write(options.run, data, eof=False, waits=True).wait())
            if options.eof:
                checked(runs.write(options.run, b"", eof=True, waits=True).wait())
        else:
            data = os.fsencode(options.text) + (b"" if options.no_newline else b"\n")
            checked(runs.write(options.run, data, eof=options.eof).wait())
    except (LookupError, OSError, Refused) as error:
        complain(problem(error))
        return 1
    return 0
