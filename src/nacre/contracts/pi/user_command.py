"""A command of the user's own, not the model's: pi's `!command`, and `bash` of the RPC.

It takes no lift and no interception, waits for nobody's turn, and has no limit but its own. So no
name of a tool leads here: a front says that it is the user who asks. What comes of it is a
`BashResult`, whose output is exactly what is shown of the command's.
"""

from typing import Annotated, Any

from msgspec import Struct

from nacre.contracts.arguments import read_arguments, seconds_kind
from nacre.contracts.contract import Reply
from nacre.contracts.pi.reply import cut_output, ending_line
from nacre.model.outcome import Cancelled, Killed, NotStarted, Outcome, TimedOut
from nacre.model.refusals import CalledOff
from nacre.model.signals import signal_name


class Arguments(Struct, frozen=True, kw_only=True):
    command: str
    cwd: str | None = None
    env: dict[str, str] = {}
    timeout: Annotated[float | None, seconds_kind(0, 10**9)] = None  # 0: none


class UserCommandContext(Struct, frozen=True):
    """Nothing but that this was such a command."""


def read_user_command(arguments: object) -> Arguments:
    """Raises Refused."""
    return read_arguments(arguments, Arguments)


def has_result(outcome: Outcome) -> bool:
    """Whether it ran; also one that was called off before it could has a result."""
    ending = outcome.ending
    return not isinstance(ending, NotStarted) or isinstance(ending.why, CalledOff)


def build_reply(outcome: Outcome) -> Reply:
    part, capture = cut_output(outcome, None, None), outcome.output
    cut = part.truncation or {}
    called_off = isinstance(outcome.ending, NotStarted)
    stopped = called_off or isinstance(outcome.ending, TimedOut | Cancelled)
    details: dict[str, Any] = {
        "output": part.text,
        "exitCode": None if stopped else outcome.exit_code,
        "cancelled": stopped,
        "truncated": part.truncation is not None,
        "totalLines": capture.lines,
        "totalBytes": capture.size,
        "outputLines": cut.get("outputLines", capture.lines),
        "outputBytes": cut.get("outputBytes", capture.size),
        "artifactId": cut.get("artifactId"),
        "run": None if called_off else outcome.run,
    }
    if isinstance(outcome.ending, TimedOut):
        details["timedOut"] = True
    if isinstance(outcome.ending, Killed):
        details["signal"] = signal_name(outcome.ending.signal)
    if outcome.left_running:
        details["leftRunning"] = [
            {"pid": each.pid, "command": each.command} for each in outcome.left_running
        ]
    wrong = "Command aborted" if called_off else ending_line(outcome)
    if stopped or outcome.exit_code is None:
        details["annotation"] = wrong
    return Reply(text=part.text, is_error=wrong is not None, details=details)
