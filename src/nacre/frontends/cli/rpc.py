"""`nacre rpc`: serve nacre's tools to a program that exchanges JSON lines with nacre on stdio."""

import argparse

from nacre.frontends.cli.common import (
    UsageError,
    check_directory,
    parse_settings,
    print_problem,
)
from nacre.frontends.cli.shared_arguments import add_contract_argument, add_option_arguments
from nacre.frontends.rpc.serve import serve_rpc


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_contract_argument(parser)
    parser.description = "Serve the tools to a program, as JSON lines on stdio; docs/guide/rpc.md."
    parser.add_argument(
        "--cwd", metavar="D", help="directory of calls without one (default: the current one)"
    )
    add_option_arguments(parser)
    parser.add_argument("--mode", choices=["rpc"], help="accepted: RPC clients of pi pass it")
    for name in ("--provider", "--model", "--session-dir"):
        parser.add_argument(name, metavar="X", help="ignored: RPC clients of pi may pass it")


def main(options: argparse.Namespace) -> int:
    try:
        check_directory(options.cwd)
        return serve_rpc(options.contract, cwd=options.cwd, options=parse_settings(options.set))
    except (UsageError, ValueError, OSError) as error:
        print_problem(str(error))
        return 2
