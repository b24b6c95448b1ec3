"""`nacre warden`: the process that keeps runs alive, in the foreground, or on stdin and stdout.

It becomes another program: the small one that is also started on need.
"""

import argparse
import os
import sys
from typing import NoReturn


def main(options: argparse.Namespace) -> NoReturn:
    words = ["--stdio"] if options.stdio else []
    os.execv(sys.executable, [sys.executable, "-m", "nacre", "warden", *words])
