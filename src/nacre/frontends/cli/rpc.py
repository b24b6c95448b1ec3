"""`nacre rpc`: serve nacre's tools to a program that exchanges JSON lines with nacre on stdio."""

import argparse
import os
import signal
from collections.abc import Mapping

import msgspec

from nacre.engine.engine import Engine
from nacre.frontends.cli.common import (
    UsageError,
    check_directory,
    own_engine,
    own_tool,
    parse_settings,
    print_problem,
    print_server_hint,
)
from nacre.frontends.cli.shared_arguments import add_contract_argument, add_option_arguments
from nacre.frontends.private_stdio import claim_stdio, make_stdio_private
from nacre.frontends.rpc.methods import MakeTool, RpcMethods, ToolKey
from nacre.frontends.rpc.server import Server
from nacre.tool.tool import Tool

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_contract_argument(parser)
    parser.description = "Serve the tools to a program, as JSON lines on stdio; docs/guide/rpc.md."
    parser.add_argument(
        "--cwd", metavar="D", help="directory of calls without one (default: the current one)"
    )
    add_option_arguments(parser)
    parser.add_argument("--mode", choices=["rpc"], help="accepted, because clients of pi give it")
    for name in ("--provider", "--model", "--session-dir"):
        parser.add_argument(
            name, metavar="X", help="ignored: nacre has no model; clients of pi may give it"
        )


def main(options: argparse.Namespace) -> int:
    engine = own_engine(serves=True)
    try:
        check_directory(options.cwd)
        # Make the directory absolute at startup: the current directory may be deleted later.
        cwd = os.path.abspath(options.cwd or os.getcwd())
        make = tool_factory(engine, options.contract, parse_settings(options.set))
        # Build one tool and close it again, so that an invalid option is reported at startup.
        make(ToolKey(contract=options.contract, cwd=cwd)).close()
    except (UsageError, ValueError, OSError) as error:
        print_problem(str(error))
        return 2
    verbs = RpcMethods(make, engine, contract=options.contract, cwd=cwd)
    print_server_hint("JSON lines")
    source, sink = claim_stdio()
    make_stdio_private()
    server = Server(verbs, engine, sink)
    for number in _STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: server.stop(received))
    return server.serve(source)


def tool_factory(engine: Engine, contract: str, chosen: Mapping[str, str]) -> MakeTool:
    """Return a function that builds a `Tool` from a `ToolKey` (contract, directory, options); all
    tools run their commands on `engine`.

    The options from the command line (`chosen`) apply only to tools of the contract (tool dialect)
    that the command line names.
    """

    def make(session: ToolKey) -> Tool:
        given = chosen if session.contract == contract else {}
        try:
            return own_tool(
                session.contract,
                cwd=session.cwd,
                tools=session.tools,
                options={**given, **msgspec.json.decode(session.options)},
                engine=engine,
            )
        except UsageError as error:
            raise ValueError(str(error)) from None

    return make
