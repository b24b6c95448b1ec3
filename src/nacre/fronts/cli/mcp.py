"""`nacre mcp`: the tools for an MCP client, on stdio or HTTP."""

import argparse
import contextlib
import shlex
from importlib.util import find_spec

from nacre.fronts.cli.common import (
    UsageError,
    check_directory,
    complain,
    own_engine,
    own_tool,
    remark,
    say_what_is_spoken,
    settings,
)
from nacre.fronts.mcp_door import Address, address, token_of
from nacre.fronts.stdio import keep_to_ourselves
from nacre.tool import Tool


def main(options: argparse.Namespace) -> int:
    if find_spec("mcp") is None:
        complain("this needs the package mcp; install it with: pip install 'mcp>=2.3,<3'")
        return 2
    try:
        if options.no_token and options.token_file:
            raise UsageError("--no-token and --token-file do not go together; choose one")
        check_directory(options.cwd)
        file, where = (None, None) if options.http is None else _where(options)
        for name in ("token_file", "no_token", "allow_host", "allow_origin"):
            if getattr(options, name) and where is None:
                raise UsageError(f"--{name.replace('_', '-')} goes with --http")
        tool = own_tool(
            options.contract,
            cwd=options.cwd,
            tools=[name for name in options.tools.split(",") if name],
            options=settings(options.set),
            max_wait=options.max_wait,
            session=options.session,
            engine=(engine := own_engine(serves=True)),
        )
    except (UsageError, ValueError, OSError) as error:
        complain(str(error))
        return 2
    with contextlib.closing(engine), tool:
        return _serve(tool, where, file)


def _where(options: argparse.Namespace) -> tuple[str | None, Address]:
    """The file that has the token, if there is one, and the address. Raises ValueError, OSError."""
    token, file = (None, None) if options.no_token else token_of(options.token_file)
    return file, address(
        options.http, token=token, hosts=options.allow_host, origins=options.allow_origin
    )


def _serve(tool: Tool, where: Address | None, file: str | None) -> int:
    import anyio

    from nacre.fronts.mcp import Shell
    from nacre.fronts.mcp_wire import over_http, over_stdio

    def ready(url: str) -> None:
        needs = f"the token is in {shlex.quote(file)}" if file else "it asks for no token"
        remark(f"nacre: serving {url}; {needs}")
        if where is not None and not where.local:
            names = ", ".join(dict.fromkeys(where.names))
            remark(f"nacre: it answers to the names {names}; --allow-host adds another")

    shell = Shell(tool)
    keep_to_ourselves()
    if where is None:
        say_what_is_spoken("MCP")
        return anyio.run(over_stdio, shell)
    code = anyio.run(over_http, shell, where, ready)
    if code is None:
        complain(
            f"{where.host}:{where.port} cannot be had: it is in use, or not an address of this "
            "machine; choose another, or --http 0"
        )
        return 1
    return code
