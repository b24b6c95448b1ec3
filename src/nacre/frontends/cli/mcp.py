"""`nacre mcp`: serve nacre's tools to an MCP client, on stdio or over HTTP."""

import argparse
import contextlib
import shlex
from importlib.util import find_spec

from nacre.frontends.cli.common import (
    UsageError,
    check_directory,
    own_engine,
    own_tool,
    parse_settings,
    print_note,
    print_problem,
    print_server_hint,
)
from nacre.frontends.cli.shared_arguments import (
    add_caller_arguments,
    add_contract_argument,
    add_session_argument,
    seconds,
)
from nacre.frontends.mcp.auth import ListenAddress, load_token, parse_address
from nacre.frontends.private_stdio import make_stdio_private
from nacre.tool.tool import Tool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_contract_argument(parser)
    parser.description = "Serve the tools to an MCP client, on stdio or HTTP; docs/guide/mcp.md."
    add_session_argument(parser)
    parser.add_argument(
        "--cwd", metavar="D", help="directory of commands (default: the current one)"
    )
    add_caller_arguments(parser)
    parser.add_argument(
        "--max-wait",
        type=seconds,
        default=45.0,
        metavar="S",
        help="seconds that a call may block before its run is detached (default 45)",
    )
    parser.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        help="serve HTTP instead of stdio; HOST defaults to loopback, port 0 is any free one",
    )
    parser.add_argument(
        "--token-file",
        metavar="F",
        help="with --http: file with the token (default: in the state directory)",
    )
    parser.add_argument("--no-token", action="store_true", help="with --http: ask for no token")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="H",
        help="another host name that clients use",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="O",
        help="web origin that may call this server",
    )


def main(options: argparse.Namespace) -> int:
    if find_spec("mcp") is None:
        print_problem("this needs the package mcp; install it with: pip install 'mcp>=2.3,<3'")
        return 2
    try:
        if options.no_token and options.token_file:
            raise UsageError("--no-token and --token-file exclude each other; choose one")
        check_directory(options.cwd)
        file, where = (None, None) if options.http is None else _listen_address(options)
        for name in ("token_file", "no_token", "allow_host", "allow_origin"):
            if getattr(options, name) and where is None:
                raise UsageError(f"--{name.replace('_', '-')} needs --http")
        tool = own_tool(
            options.contract,
            cwd=options.cwd,
            tools=[name for name in options.tools.split(",") if name],
            options=parse_settings(options.set),
            max_wait=options.max_wait,
            session=options.session,
            engine=(engine := own_engine(serves=True, wake_on_signals=False)),
        )
    except (UsageError, ValueError, OSError) as error:
        print_problem(str(error))
        return 2
    with contextlib.closing(engine), tool:
        return _serve(tool, where, file)


def _listen_address(options: argparse.Namespace) -> tuple[str | None, ListenAddress]:
    """Return the token file's path (None with `--no-token`) and the HTTP server's address.

    Raises ValueError for an invalid option or token, OSError for a token file that cannot be read.
    """
    token, file = (None, None) if options.no_token else load_token(options.token_file)
    return file, parse_address(
        options.http, token=token, hosts=options.allow_host, origins=options.allow_origin
    )


def _serve(tool: Tool, where: ListenAddress | None, file: str | None) -> int:
    import anyio

    from nacre.frontends.mcp.server import McpServer
    from nacre.frontends.mcp.transport import serve_http, serve_stdio

    def ready(url: str) -> None:
        needs = f"the token is in {shlex.quote(file)}" if file else "no token is required"
        print_note(f"nacre: serving {url}; {needs}")
        if where is not None and not where.local:
            names = ", ".join(dict.fromkeys(where.names))
            print_note(f"nacre: allowed host names: {names}; --allow-host adds another")

    shell = McpServer(tool)
    make_stdio_private()
    if where is None:
        print_server_hint("MCP")
        return anyio.run(serve_stdio, shell)
    code = anyio.run(serve_http, shell, where, ready)
    if code is None:
        print_problem(
            f"{where.host}:{where.port} cannot be bound: it is in use, or not an address of this "
            "machine; choose another, or --http 0"
        )
        return 1
    return code
