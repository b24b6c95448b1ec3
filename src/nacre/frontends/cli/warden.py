"""`nacre warden`: run the warden (nacre's daemon), or connect stdin and stdout to the warden.

The process of `nacre warden` replaces itself (execv) with the same small program that nacre starts
when it needs a warden.
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
