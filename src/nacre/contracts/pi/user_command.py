"""User commands of the `pi` contract: commands that the user, not the model, enters as `!command`
in the agent pi, or as a `bash` message over RPC.

Three steps of the `pi` contract do not apply to a user command: the rewriting of a leading `cd`,
interception, and the replacement of internal URLs. A user command does not wait for the model's
commands to end. The only time limit of a user command is the `timeout` in its own arguments. A
model cannot start a user command, which has fewer restrictions, by calling a tool: a front end must
state that the user entered the command. The data of the reply to a user command is a `BashResult`,
whose `output` is exactly the shown part of the command's output. If nacre stopped the command,
`output` begins with a line in brackets that gives the reason. A `BashResult` leaves out each field
that has no value, such as the exit code of a stopped command.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Struct

from nacre.contracts.arguments import read_arguments, seconds_kind
from nacre.contracts.contract import Reply
from nacre.contracts.phrases import moved_notes
from nacre.contracts.pi.reply import cut_output, ending_line
from nacre.model.findings import AnyFinding
from nacre.model.outcome import Cancelled, Killed, NotStarted, Outcome, TimedOut
from nacre.model.refusals import CalledOff
from nacre.model.signals import signal_name


class Arguments(Struct, frozen=True, kw_only=True):
    command: str
    cwd: str | None = None
    env: dict[str, str] = {}
    # Maximum seconds of a user command; None or 0: no limit.
    timeout: Annotated[float | None, seconds_kind(0, 10**9)] = None


class UserCommandContext(Struct, frozen=True):
    """Marker for the reply builder: the user entered the command, so the data of the reply is a
    `BashResult`."""


def read_user_command(arguments: object) -> Arguments:
    """Parse the arguments of a user command. Raises Refused."""
    return read_arguments(arguments, Arguments)


def has_result(outcome: Outcome) -> bool:
    """Return whether a user command has a result to show: the command ran, or was cancelled before
    its start."""
    ending = outcome.ending
    return not isinstance(ending, NotStarted) or isinstance(ending.why, CalledOff)


def build_reply(outcome: Outcome, findings: Sequence[AnyFinding]) -> Reply:
    part, capture = cut_output(outcome, None, None), outcome.output
    cut = part.truncation or {}
    called_off = isinstance(outcome.ending, NotStarted)
    stopped = called_off or isinstance(outcome.ending, TimedOut | Cancelled)
    wrong = "Command aborted" if called_off else ending_line(outcome)
    details: dict[str, Any] = {
        "output": _stop_notice(outcome) + part.text if stopped else part.text,
        "cancelled": stopped,
        "truncated": part.truncation is not None,
        "totalLines": capture.lines,
        "totalBytes": capture.size,
        "outputLines": cut.get("outputLines", capture.lines),
        "outputBytes": cut.get("outputBytes", capture.size),
    }
    if not stopped and outcome.exit_code is not None:
        details["exitCode"] = outcome.exit_code
    if "artifactId" in cut:
        details["artifactId"] = cut["artifactId"]
    if not called_off:
        details["run"] = outcome.run
    if isinstance(outcome.ending, TimedOut):
        details["timedOut"] = True
    if isinstance(outcome.ending, Killed):
        details["signal"] = signal_name(outcome.ending.signal)
    if outcome.left_running:
        details["leftRunning"] = [
            {"pid": each.pid, "command": each.command} for each in outcome.left_running
        ]
    notes = [wrong] if wrong and (stopped or outcome.exit_code is None) else []
    if notes := [*notes, *moved_notes(findings)]:
        details["annotation"] = "; ".join(notes)
    return Reply(text=part.text, is_error=wrong is not None, details=details)


def _stop_notice(outcome: Outcome) -> str:
    """Return the line that comes before the output of a command that nacre has stopped."""
    if isinstance(outcome.ending, TimedOut):
        return f"[{ending_line(outcome)}]\n"
    return "[Command cancelled]\n"
