"""`nacre schema`: what to give the model."""

import argparse
import json

from nacre.fronts.cli.common import UsageError, complain, settings, show
from nacre.tool import Tool


def main(options: argparse.Namespace) -> int:
    try:
        tool = Tool(options.contract, cwd=options.cwd, options=settings(options.set))
    except (UsageError, ValueError) as error:
        complain(str(error))
        return 2
    show(json.dumps(tool.specs(format=options.format), indent=2, ensure_ascii=False))
    return 0
