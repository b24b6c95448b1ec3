"""`nacre rpc`: JSON lines on stdio, for a program that drives the shell."""

import argparse
import signal

import msgspec

from nacre.fronts.cli.common import UsageError, complain, own_engine, own_tool, settings
from nacre.fronts.rpc import Server
from nacre.fronts.stdio import claim, keep_to_ourselves
from nacre.fronts.verbs import Session, Verbs
from nacre.tool import Tool

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(options: argparse.Namespace) -> int:
    engine = own_engine()
    try:
        chosen = settings(options.set)

        def make(session: Session) -> Tool:
            """What was chosen on the command line is for the contract that was chosen there."""
            given = chosen if session.contract == options.contract else {}
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

        make(Session(contract=options.contract, cwd=options.cwd)).close()  # it can be had at all
    except (UsageError, ValueError) as error:
        complain(str(error))
        return 2
    verbs = Verbs(make, engine, contract=options.contract, cwd=options.cwd)
    source, sink = claim()
    keep_to_ourselves()
    server = Server(verbs, engine, sink)
    for number in _STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: server.stop(received))
    return server.serve(source)
