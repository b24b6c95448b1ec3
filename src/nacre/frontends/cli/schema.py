"""`nacre schema`: print nacre's tool definitions in the format of Anthropic, OpenAI or MCP."""

import argparse
import json

from nacre.frontends.cli.common import UsageError, parse_settings, print_line, print_problem
from nacre.frontends.cli.shared_arguments import add_contract_argument, add_option_arguments
from nacre.tool.tool import Tool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_contract_argument(parser)
    parser.add_argument(
        "--format",
        choices=("anthropic", "openai", "mcp"),
        default="anthropic",
        help="format of the schemas (default anthropic)",
    )
    parser.add_argument("--cwd", metavar="D", help="directory (default: the current one)")
    add_option_arguments(parser)


def main(options: argparse.Namespace) -> int:
    try:
        tool = Tool(options.contract, cwd=options.cwd, options=parse_settings(options.set))
    except (UsageError, ValueError) as error:
        print_problem(str(error))
        return 2
    print_line(json.dumps(tool.specs(format=options.format), indent=2, ensure_ascii=False))
    return 0
