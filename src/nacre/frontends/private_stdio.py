"""Standard input and output as the wire of a protocol: nobody else may get at them."""

import os

from nacre.process.own_process import make_undumpable


def claim_stdio() -> tuple[int, int]:
    """What comes in and goes out, as descriptors that no child inherits. Whoever reads 0 from now
    on finds nothing, and what is written to 1 goes to stderr."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def make_stdio_private() -> None:
    """Our descriptors can also be opened by their names in /proc, by all of the same user: have
    the kernel refuse that. It does so to everybody but root."""
    make_undumpable()
