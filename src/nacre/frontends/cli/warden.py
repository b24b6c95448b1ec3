"""`nacre warden`: run the warden in the foreground, or connect stdin and stdout to the warden.

This process replaces itself (execv) with the small program that nacre also starts on demand.
"""

import argparse
import os
import sys
from typing import NoReturn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stdio",
        action="store_true",
        help="connect stdin and stdout to the warden, for example over ssh",
    )


def main(options: argparse.Namespace) -> NoReturn:
    words = ["--stdio"] if options.stdio else []
    os.execv(sys.executable, [sys.executable, "-m", "nacre", "warden", *words])
