"""`nacre warden`: the process that keeps runs alive, in the foreground, or on stdin and stdout.

It becomes another program: the small one that is also started on need.
"""

import argparse
import os
import sys
from typing import NoReturn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stdio", action="store_true", help="speak to it through stdin and stdout, as over ssh"
    )


def main(options: argparse.Namespace) -> NoReturn:
    words = ["--stdio"] if options.stdio else []
    os.execv(sys.executable, [sys.executable, "-m", "nacre", "warden", *words])
