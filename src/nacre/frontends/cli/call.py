"""`nacre call`: make one tool call and print the reply as one JSON object."""

import argparse
import json
import signal
import sys
from typing import Any

import msgspec

from nacre.frontends.cli.common import (
    UsageError,
    cancel_on_signals,
    own_tool,
    parse_settings,
    print_line,
    print_problem,
)
from nacre.frontends.cli.shared_arguments import (
    add_caller_arguments,
    add_contract_argument,
    add_session_argument,
)
from nacre.model.cancel import CancelToken


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_contract_argument(parser)
    add_session_argument(parser)
    parser.add_argument(
        "--tool", default="bash", metavar="T", help="name of the tool (default bash)"
    )
    parser.add_argument(
        "--cwd", metavar="D", help="directory of the call (default: the current one)"
    )
    add_caller_arguments(parser)
    parser.add_argument("arguments", metavar="ARGUMENTS", help="a JSON object, or - for stdin")


def main(options: argparse.Namespace) -> int:
    try:
        arguments = _parse_arguments(options.arguments)
        tool = own_tool(
            options.contract,
            cwd=options.cwd,
            tools=[name for name in options.tools.split(",") if name],
            options=parse_settings(options.set),
            session=options.session,
        )
        known = [spec["name"] for spec in tool.specs()]
        if options.tool not in known:
            hint = "; --set async=true brings job" if options.contract == "pi" else ""
            raise UsageError(f"there is no tool {options.tool!r}; tools: {', '.join(known)}{hint}")
    except UsageError as error:
        print_problem(str(error))
        return 2
    cancel = CancelToken()
    cancel_on_signals(cancel, signal.SIGUSR1, signal.SIGUSR2)
    tool.store_positions()
    with tool:
        reply = tool.call(arguments, tool=options.tool, cancel=cancel)
        if tool.audit_problem is not None:
            print_problem(tool.audit_problem)
    print_line(msgspec.json.encode(tool.contract.to_json(reply)).decode())
    return 0


def _parse_arguments(given: str) -> dict[str, Any]:
    try:
        text = sys.stdin.buffer.read().decode() if given == "-" else given
        arguments = json.loads(text)
    except (ValueError, RecursionError, OSError) as error:
        example = '{"command": "ls"}'
        raise UsageError(
            f"ARGUMENTS is not JSON ({error}); give an object, like {example}"
        ) from None
    if not isinstance(arguments, dict):
        raise UsageError('ARGUMENTS must be a JSON object, like {"command": "ls"}')
    return arguments
