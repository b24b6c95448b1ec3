"""`nacre rpc`: JSON lines on stdio, for a program that drives the shell."""

import argparse
import os
import signal
from collections.abc import Mapping

import msgspec

from nacre.engine.engine import Engine
from nacre.fronts.cli.common import (
    UsageError,
    check_directory,
    complain,
    own_engine,
    own_tool,
    say_what_is_spoken,
    settings,
)
from nacre.fronts.rpc import Server
from nacre.fronts.stdio import claim, keep_to_ourselves
from nacre.fronts.verbs import MakeTool, Session, Verbs
from nacre.tool import Tool

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(options: argparse.Namespace) -> int:
    engine = own_engine(serves=True)
    try:
        check_directory(options.cwd)
        cwd = os.path.abspath(options.cwd or os.getcwd())  # it may be gone one day
        make = tools_of(engine, options.contract, settings(options.set))
        make(Session(contract=options.contract, cwd=cwd)).close()  # it can be had at all
    except (UsageError, ValueError, OSError) as error:
        complain(str(error))
        return 2
    verbs = Verbs(make, engine, contract=options.contract, cwd=cwd)
    say_what_is_spoken("JSON lines")
    source, sink = claim()
    keep_to_ourselves()
    server = Server(verbs, engine, sink)
    for number in _STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: server.stop(received))
    return server.serve(source)


def tools_of(engine: Engine, contract: str, chosen: Mapping[str, str]) -> MakeTool:
    """What was chosen on the command line is for the contract that was chosen there."""

    def make(session: Session) -> Tool:
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
