"""Start of the RPC server: for the command `nacre rpc`, and for a Python program that serves RPC
with resolvers of its own."""

import os
import signal
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nacre.contracts import registry
from nacre.engine.engine import Engine
from nacre.frontends.cli.common import UsageError, own_engine, own_tool, print_server_hint
from nacre.frontends.private_stdio import claim_stdio, make_stdio_private
from nacre.frontends.rpc.methods import MakeTool, RpcMethods, ToolKey
from nacre.frontends.rpc.server import Server
from nacre.store.url_resolvers import HostResolver
from nacre.tool.tool import Tool

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve_rpc(
    contract: str = registry.DEFAULT,
    *,
    cwd: str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    resolvers: Mapping[str, HostResolver] | None = None,
) -> int:
    """Serve RPC messages on stdin and stdout until the end of input, and return the exit code of
    the process. Raises ValueError for a bad argument, OSError for a bad directory.

    `contract` and `cwd` are the default contract (tool dialect) and directory of the messages.
    `options` are options of that contract. `resolvers` resolve internal URLs, as in `Tool`. The
    calling process becomes the server: its stdin and stdout belong to the client.
    """
    engine = own_engine(serves=True)
    # Make the directory absolute at startup: the current directory may be deleted later.
    place = os.path.abspath(cwd or os.getcwd())
    make = tool_factory(engine, contract, options or {}, resolvers or {})
    # Build one tool and close it again, so that an invalid option is reported at startup.
    make(ToolKey(contract=contract, cwd=place)).close()
    verbs = RpcMethods(make, engine, contract=contract, cwd=place)
    print_server_hint("JSON lines")
    source, sink = claim_stdio()
    make_stdio_private()
    server = Server(verbs, engine, sink)
    for number in _STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: server.stop(received))
    return server.serve(source)


def tool_factory(
    engine: Engine,
    contract: str,
    chosen: Mapping[str, Any],
    resolvers: Mapping[str, HostResolver],
) -> MakeTool:
    """Return a function that builds a `Tool` from a `ToolKey` (contract, directory, options); all
    tools run their commands on `engine`.

    The options `chosen` apply only to tools of the contract (tool dialect) `contract`.
    """

    def make(session: ToolKey) -> Tool:
        given = chosen if session.contract == contract else {}
        try:
            return own_tool(
                session.contract,
                cwd=session.cwd,
                tools=session.tools,
                options={**given, **msgspec.json.decode(session.options)},
                resolvers=resolvers,
                engine=engine,
            )
        except UsageError as error:
            raise ValueError(str(error)) from None

    return make
