"""Stdin and stdout of a server process, reserved for its protocol.

Child processes and other processes of the user cannot read or write these two descriptors.
"""

import os

from nacre.process.own_process import make_undumpable


def claim_stdio() -> tuple[int, int]:
    """Move stdin and stdout to descriptors that no child inherits, and return both descriptors.

    Afterwards descriptor 0 is at EOF, and descriptor 1 refers to stderr.
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def make_stdio_private() -> None:
    """Prevent other processes from opening this process's descriptors through /proc.

    By default every process of the same user can open these descriptors. Afterwards only root can.
    """
    make_undumpable()
