"""`nacre write`: write to the stdin of a run that was started with an open stdin."""

import argparse
import os
import sys

from nacre.frontends.cli.common import print_problem
from nacre.frontends.cli.run_access import open_access
from nacre.frontends.cli.run_formatting import describe_error
from nacre.model.refusals import Refused
from nacre.runs.access import raise_if_rejected

_PIECE = 64 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="run id, 17 or r17")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="one line; default: stdin")
    parser.add_argument("--no-newline", action="store_true", help="write TEXT without a newline")
    parser.add_argument("--eof", action="store_true", help="then close the stdin of the run")
    parser.add_argument(
        "--cwd", metavar="D", help="directory of the workspace (default: the current one)"
    )


def main(options: argparse.Namespace) -> int:
    try:
        runs = open_access(options.cwd)
        runs.find(options.run)
        if options.text is None:
            if not options.eof or not sys.stdin.isatty():
                while data := os.read(0, _PIECE):
                    raise_if_rejected(
                        runs.write(options.run, data, eof=False, wait_for_room=True).wait()
                    )
            if options.eof:
                raise_if_rejected(runs.write(options.run, b"", eof=True, wait_for_room=True).wait())
        else:
            data = os.fsencode(options.text) + (b"" if options.no_newline else b"\n")
            raise_if_rejected(runs.write(options.run, data, eof=options.eof).wait())
    except (LookupError, OSError, Refused) as error:
        print_problem(describe_error(error))
        return 1
    return 0
