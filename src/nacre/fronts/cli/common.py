"""What the commands share: a tool in a process of our own, and signals that cancel."""

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nacre.cancel import CancelToken
from nacre.engine.engine import Engine
from nacre.process.ours import become_subreaper
from nacre.tool import Tool

# By these a person or a supervisor asks us to stop; by those they speak to the command.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


class UsageError(Exception):
    """The command line cannot be understood; the message says how it can."""


def own_tool(
    contract: str,
    *,
    cwd: str | None,
    tools: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Tool:
    """A tool whose process is ours: nothing that a stopped command started gets away."""
    engine = Engine(ours=become_subreaper())
    try:
        return Tool(contract, cwd=cwd, tools=tools, options=options, engine=engine)
    except ValueError as error:
        raise UsageError(str(error)) from None


def cancel_on_signals(cancel: CancelToken) -> None:
    for number in STOPPING:
        # Whoever started us with a signal ignored (nohup, say) wants it ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: cancel.cancel(received))


def pass_on_signals(send: Callable[[int], object]) -> None:
    for number in PASSED_ON:
        signal.signal(number, lambda received, _: send(received))


def complain(problem: str) -> None:
    print(f"nacre: {problem}", file=sys.stderr)
