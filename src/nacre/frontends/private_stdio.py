"""Reservation of a server's stdin and stdout for the server's protocol (JSON lines or MCP).

Neither child processes nor other processes of the user can read or write the descriptors through
which the server speaks its protocol.
"""

import os

from nacre.process.own_process import make_undumpable


def claim_stdio() -> tuple[int, int]:
    """Move stdin and stdout to descriptors that no child inherits, and return both descriptors.

    After `claim_stdio`, a read from descriptor 0 returns EOF, and descriptor 1 refers to stderr.
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def make_stdio_private() -> None:
    """Prevent other processes of the user from opening this process's descriptors through /proc.

    By default, every process of the same user can open the files in `/proc/PID/fd`; after
    `make_stdio_private`, only root can open those of this process.
    """
    make_undumpable()
