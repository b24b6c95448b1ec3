"""The `harness` contract, the smallest dialect of the tool: one command in, `{"stdout", "stderr",
"exitCode"}` out.

A command of the `harness` contract inherits the caller's environment unchanged, and its stdout and
stderr are captured separately, each up to 1 MiB. With the `harness` contract, a failed call is
reported as `{"error": ...}`, together with the output that the command printed before the failure.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from nacre.contracts.arguments import object_schema, read_arguments, read_script
from nacre.contracts.contract import Admitted, Reply, ToolSpec, no_user_command
from nacre.contracts.option_reader import Limit, Seconds, read_options
from nacre.contracts.phrases import SPILL
from nacre.model.caller import Caller
from nacre.model.findings import AnyFinding
from nacre.model.outcome import (
    Cancelled,
    Capture,
    Exited,
    Lost,
    NotStarted,
    Outcome,
    TimedOut,
)
from nacre.model.plan import BASH, KIB, MIB, Command, Keep, Limits, Plan, Streams
from nacre.model.refusals import AnyRefusal, CalledOff, Refused, UnknownTool
from nacre.model.requests import Result, StartRun
from nacre.model.signals import signal_name
from nacre.prepare.directory import check_directory
from nacre.text.clean import decode, fit_start, shown_size

_TRUNCATION_SUFFIX: Final = "... (truncated)"
# The last 16 KiB of a long output are kept only to be searched for bash's message about a missing
# command; no reply shows them.
_KEEP: Final = Keep(whole=MIB, head=MIB - len(_TRUNCATION_SUFFIX), tail=16 * KIB)
_MAX_SHOWN: Final = MIB  # maximum size of a stream in a reply, in bytes of UTF-8

_DESCRIPTION: Final = "Execute a bash command and return stdout/stderr"
_DESCRIPTIONS: Final = {"command": "The bash command to execute"}


class Bash(Struct, frozen=True, kw_only=True):
    """Arguments of the tool `bash`, the only tool of the `harness` contract."""

    command: str


class Options(Struct, frozen=True, kw_only=True):
    timeout: Limit = 30.0
    grace: Seconds = 2.0


class Harness:
    name = "harness"
    event_interval = 0.0
    has_sessions = False
    steps = (check_directory,)
    admit_user_command = staticmethod(no_user_command)

    def __init__(self, options: Options) -> None:
        self._limits = Limits(timeout=options.timeout, grace=options.grace)

    def with_max_wait(self, seconds: float) -> Self:
        # A call of the `harness` contract waits until its command ends; only the timeout of the
        # command limits the wait.
        del seconds
        return self

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]:
        del caller  # the declaration of the tool is the same for every caller
        schema = object_schema(Bash, _DESCRIPTIONS)
        # Lazy import: only the declaration of the tool needs the reply schema; tool calls do not.
        from nacre.contracts.reply_schemas import HARNESS_REPLY

        return (
            ToolSpec(
                name="bash", description=_DESCRIPTION, schema=schema, reply_schema=HARNESS_REPLY
            ),
        )

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        if tool != "bash":
            raise Refused(UnknownTool(tool=tool, known=("bash",)))
        script = read_script(read_arguments(arguments, Bash).command)
        return Admitted(request=StartRun(plan=self.plan(script, caller)), steps=self.steps)

    def plan(self, script: bytes, caller: Caller) -> Plan:
        return Plan(
            command=Command(original=script, script=script, cwd=caller.cwd, env=caller.env),
            streams=Streams.SEPARATE,
            limits=self._limits,
            keep=_KEEP,
            spill=SPILL,
        )

    def reply(self, result: Result, reply_context: None, findings: Sequence[AnyFinding]) -> Reply:
        del reply_context, findings
        assert isinstance(result, Outcome)  # the `harness` contract never detaches a command
        error = _error_text(result)
        if isinstance(result.ending, NotStarted):
            return _build_reply({"error": error})
        fields = _process_reply(result, failed=error is not None)
        return _build_reply(fields if error is None else {"error": error, **fields})

    def reply_to_refusal(self, refusal: AnyRefusal) -> Reply:
        return _build_reply({"error": str(refusal)})

    def to_json(self, reply: Reply) -> dict[str, Any]:
        return reply.details


def make(options: Mapping[str, Any]) -> Harness:
    return Harness(read_options(options, Options))


def _build_reply(fields: dict[str, Any]) -> Reply:
    return Reply(
        text=msgspec.json.encode(fields).decode(), is_error="error" in fields, details=fields
    )


def _process_reply(outcome: Outcome, *, failed: bool) -> dict[str, Any]:
    """Return the reply fields (output, exit code, signal) for a command that ran. A reply with an
    `error` (`failed` is True) has only the output."""
    fields: dict[str, Any] = {
        "stdout": _decode_capture(outcome.output),
        "stderr": _decode_capture(outcome.errors or Capture()),
    }
    if failed:
        return fields
    if outcome.exit_code is not None:
        fields["exitCode"] = outcome.exit_code
    if outcome.signal is not None:
        fields["signal"] = signal_name(outcome.signal)
    return fields


def _error_text(outcome: Outcome) -> str | None:
    ending = outcome.ending
    if isinstance(ending, Exited):
        return _explain_not_executed(ending.code, outcome.errors or Capture())
    match ending:
        case TimedOut(after=after):
            return f"command timed out after {after:g} second{'' if after == 1 else 's'}"
        case Cancelled() | NotStarted(why=CalledOff()):
            return "command cancelled"
        case NotStarted(why=why):
            return str(why)
        case Lost():
            return (
                "the exit status of the command is unknown: the process that ran it was killed, "
                "or another part of this program collected it"
            )
        case _:
            return None


def _decode_capture(capture: Capture) -> str:
    if capture.size == len(capture.head) and shown_size(capture.head) <= _MAX_SHOWN:
        return decode(capture.head)
    head = fit_start(capture.head, _MAX_SHOWN - len(_TRUNCATION_SUFFIX))
    return decode(head) + _TRUNCATION_SUFFIX


# Pattern of bash's messages about a program that bash could not find or execute. Other
# messages of a bash that exits with 127, such as `X: unbound variable` under `set -u`, must not
# match the pattern of messages about missing programs. In error messages about a command inside a
# function, bash calls itself `environment`.
_DIAGNOSTIC: Final = re.compile(
    rb"(?:" + re.escape(BASH) + rb"|environment): (?:line \d+: )?(?:exec: )?(?P<what>.*?): (?P<why>"
    rb"command not found|not found|No such file or directory"
    rb"|cannot execute: required file not found|.*: bad interpreter: No such file or directory"
    rb"|Permission denied|Is a directory|cannot execute: .*|cannot execute binary file: .*)"
)
_MISSING: Final = re.compile(rb".*not found|.*No such file or directory")


def _explain_not_executed(code: int, errors: Capture) -> str | None:
    """Return an error text if the last line of stderr says that bash could not run a program."""
    if code not in (126, 127):
        return None
    fields = (errors.head + errors.tail if not errors.omitted else errors.tail).rstrip(b"\n")
    found = _DIAGNOSTIC.fullmatch(fields.rpartition(b"\n")[2])
    # A builtin's error message about a file (`cd: /nope: No such file ...`) does not mean that a
    # command is missing.
    if found is None or b": " in found["what"]:
        return None
    what = decode(found["what"]) or "''"
    if code == 127:
        return f"command not found: {what}" if _MISSING.fullmatch(found["why"]) else None
    missing = _MISSING.fullmatch(found["why"]) and b"interpreter" not in found["why"]
    return None if missing else f"permission denied: {what}"
