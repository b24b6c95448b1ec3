"""`nacre mcp`: the tools for an MCP client, on stdio or HTTP."""

import argparse
import shlex
from importlib.util import find_spec

from nacre.fronts.cli.common import UsageError, complain, own_tool, remark, settings
from nacre.fronts.mcp_door import Address, address, token_of
from nacre.fronts.stdio import keep_to_ourselves
from nacre.tool import Tool


def main(options: argparse.Namespace) -> int:
    if find_spec("mcp") is None:
        complain("this needs the package mcp; install it with: pip install 'nacre[mcp]'")
        return 2
    try:
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
        )
    except (UsageError, ValueError, OSError) as error:
        complain(str(error))
        return 2
    with tool:
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

    shell = Shell(tool)
    keep_to_ourselves()
    if where is None:
        return anyio.run(over_stdio, shell)
    return anyio.run(over_http, shell, where, ready)
