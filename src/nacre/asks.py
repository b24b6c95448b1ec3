"""What can be asked of an engine, and what it answers.

An ask is what a contract makes of a model's arguments; it can cross a socket.
"""

from msgspec import Struct

from nacre.plan import Plan


class Run(Struct, frozen=True, kw_only=True, tag=True):
    """Run this and tell me how it ended."""

    plan: Plan


class Signal(Struct, frozen=True, kw_only=True, tag=True):
    """Send a signal to everything that a live run has started."""

    run: str
    signal: int


class Done(Struct, frozen=True, kw_only=True, tag=True):
    """The ask was carried out (or, `found=False`, there is no such live run)."""

    found: bool = True
