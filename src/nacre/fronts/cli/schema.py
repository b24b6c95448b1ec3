"""`nacre schema`: what to give the model."""

import argparse
import json

from nacre.fronts.cli.common import complain, show
from nacre.tool import Tool


def main(options: argparse.Namespace) -> int:
    try:
        tool = Tool(options.contract)
    except ValueError as error:
        complain(str(error))
        return 2
    show(json.dumps(tool.specs(format=options.format), indent=2))
    return 0
